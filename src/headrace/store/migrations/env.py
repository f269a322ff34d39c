"""How Alembic runs our revisions: on the connection, and in the transaction, it is given."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from headrace.store.migrate import REVISIONS
from headrace.store.whole_schema import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=REVISIONS,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters tables by copying them
)
with context.begin_transaction():
    context.run_migrations()
