"""The model: values, state machines and decisions of jobs, tables and groups, free of I/O."""
