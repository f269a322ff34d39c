"""Jobs, their pipelines and epochs, and what outlives them: history, savepoints, logs, cleanups."""
