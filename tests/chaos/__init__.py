"""A whole installation under random faults, for as long as one likes: `make chaos MINUTES=15`.

Real PostgreSQL, three coordinators and two workers with their default settings run streams and
batches with several sinks each, into tables that are compacted meanwhile. Processes are killed and
stopped, the database crashes, answers are lost. At the end each target is read by other programs
than ours and compared with what its source gave. CONTRIBUTING.md says what a problem is, and which
settings are not the defaults.
"""
