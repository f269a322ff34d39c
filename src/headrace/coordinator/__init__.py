"""The coordinator: elects a leader, answers workers, and reconciles jobs, tables and groups."""
