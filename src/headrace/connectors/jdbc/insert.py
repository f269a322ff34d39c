"""The user's own INSERT, taken apart. Pure.

Only the plain form is understood: a table, perhaps its columns, and one `?` for each. Rows pass
through a stage table first, so anything more (functions of a value, ON CONFLICT, RETURNING) would
have to be understood in order to be kept, and is refused instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.jdbc.names import parts_of
from headrace.errors import Refused
from headrace.jobfile.plugins.jdbc import INSERT, INSERT_NAME


@dataclass(frozen=True, slots=True)
class Insert:
    table: tuple[str, ...]
    columns: tuple[str, ...] | None  # None: all of the table's, in its order
    values: int


def read_insert(query: str) -> Insert:
    """Raises `Refused` for any other statement. Names without quotes are folded to lower case."""
    match = INSERT.fullmatch(query)
    if match is None:
        raise Refused(
            "option 'query' must have the form INSERT INTO t (a, b) VALUES (?, ?); for anything "
            "else shape the rows in a transform, and set generate_sink_sql = true with 'table'"
        )
    columns = match["columns"]
    names = tuple(_folded(name) for name in INSERT_NAME.findall(columns)) if columns else None
    values = match["values"].count("?")
    if names is not None and len(names) != values:
        raise Refused(f"option 'query' names {len(names)} columns and has {values} values")
    if names is not None and len(set(names)) != len(names):
        raise Refused("option 'query' names a column twice")
    return Insert(
        tuple(_folded(name) for name in INSERT_NAME.findall(match["table"])), names, values
    )


def _folded(name: str) -> str:
    (part,) = parts_of(name)
    return part if name.startswith('"') else part.lower()
