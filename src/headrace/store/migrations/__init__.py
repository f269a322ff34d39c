"""The history of the store's schema, as Alembic revisions.

A revision that is released is never changed. It either lets the programs of the release before
go on (added tables, added columns with a default), or raises `oldest_program` in `facts` and ends
the leader's term, by adding 1 to `leases.epoch` and emptying its holder, in the same revision.
"""

from __future__ import annotations
