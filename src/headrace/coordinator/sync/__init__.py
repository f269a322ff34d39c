"""What the leader does with a worker's sync: liveness, reports, assignments, and wake-up calls."""
