"""Self-optimizing tables, as pure decisions: what is measured, what is rewritten, and when.

What a table's files look like, which partitions need a rewrite and why, which files go together,
which table is next, and what a restart makes of each table. Nothing here reads a table, a clock or
a store: a worker brings the files, the caller the time.
"""

from __future__ import annotations
