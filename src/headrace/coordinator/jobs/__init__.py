"""Jobs, as the leader sees them: commands, admission, attempts, end, restore and cleanup."""
