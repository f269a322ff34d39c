"""The worker process: its host, its executions of tasks, the outbox and the warm Spark session."""
