"""How Alembic runs our revisions: on the connection, and in the transaction, that it is given.

A revision that was released is never changed. It either lets the programs of the release before go
on (added tables, added columns with a default), or raises `oldest_program` in `facts` and ends the
leader's term, by adding 1 to `leases.epoch` and emptying its holder, in the same revision.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from headrace.store.migrate import REVISIONS, metadata

connection: Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=REVISIONS,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters tables by copying them
)
with context.begin_transaction():
    context.run_migrations()
