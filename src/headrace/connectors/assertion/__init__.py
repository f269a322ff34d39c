"""Assert: rules that rows must keep, judged by Spark."""
