"""Every table of the store: they are declared in three places, and some need all of them."""

from __future__ import annotations

from headrace.store import group_schema, schema, table_schema
from headrace.store.naming import metadata

__all__ = ["DECLARED", "metadata"]

DECLARED = (schema, table_schema, group_schema)
