"""How the store's tables, keys and indexes are named, and the pieces of DDL they share."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Index, MetaData, text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def one_of(values: Iterable[str]) -> str:
    return "(" + ", ".join(f"'{value}'" for value in sorted(values)) + ")"


def partial_index(name: str, *columns: str, where: str) -> Index:
    """An index over the few rows that loops look for, so that it stays small."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))
