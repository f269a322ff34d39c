"""The worker process: its sync loop, its executions, the outbox and the warm Spark session."""
