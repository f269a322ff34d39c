"""Self-optimizing, as pure decisions: what a table's files look like, which partitions need a
rewrite and why, which files go together, who is next, and what a restart makes of each table.

Nothing here reads a table, a clock or a store. A worker brings the files, the caller the time.
"""

from __future__ import annotations
