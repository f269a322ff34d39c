"""What a worker does for lake tables: all that is heavy."""
