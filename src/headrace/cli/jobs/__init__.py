"""Commands about jobs: `headrace run`, `headrace job …`, the wait for a job, its summary."""
