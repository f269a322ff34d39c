"""Lake tables, as the leader sees them: decided by their rows, worked on by workers."""
