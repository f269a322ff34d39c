"""Random writes to a lake table, and a plain copy of what they make of its rows.

Rows are appended, deleted and updated; columns are added, renamed and widened; the partitioning
changes. The copy is a dictionary: it knows nothing of files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

APPEND_MAX = 20  # rows of one append
EXTRA_MAX = 4  # columns that are added
# How often each kind comes, before all begin anew; in any order.
DECK: Sequence[str] = (
    *(["append"] * 4 + ["delete"] * 2 + ["update"] * 2),
    *("add column", "rename column", "widen", "partition"),
)
PARTITIONINGS = ("bucket(2, id)", "part", "bucket(3, id)")


class RandomWrites:
    def __init__(self, table: str, rng: random.Random) -> None:
        self._table, self._rng = table, rng
        self.rows: dict[int, dict[str, Any]] = {}
        self._columns: dict[str, str] = {"id": "BIGINT", "part": "INT", "v": "INT", "s": "STRING"}
        self._added, self._next_id = 0, 1
        self._partitioned_by: str | None = None

    def creation(self, properties: Mapping[str, str]) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self._columns.items())
        told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return f"CREATE TABLE {self._table} ({columns}) USING iceberg TBLPROPERTIES ({told})"

    def query(self) -> str:
        return f"SELECT * FROM {self._table} ORDER BY id"

    def expected(self) -> Sequence[Mapping[str, Any]]:
        return [self.rows[key] for key in sorted(self.rows)]

    def next(self, kind: str) -> tuple[str, Callable[[], None]]:
        """A statement, and what is to be done to the copy once it was run."""
        return {
            "append": self._append,
            "delete": self._delete,
            "update": self._update,
            "add column": self._add_column,
            "rename column": self._rename_column,
            "widen": self._widen,
            "partition": self._partition,
        }[kind]()

    def _append(self) -> tuple[str, Callable[[], None]]:
        made = [self._row() for _ in range(self._rng.randint(3, APPEND_MAX))]
        values = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in made)
        return (
            f"INSERT INTO {self._table} VALUES {values}",
            lambda: self.rows.update({row["id"]: row for row in made}),
        )

    def _row(self) -> dict[str, Any]:
        number, self._next_id = self._next_id, self._next_id + 1
        values: dict[str, Any] = {
            name: f"s{self._rng.randint(0, 99)}" if kind == "STRING" else self._rng.randint(0, 99)
            for name, kind in self._columns.items()
        }
        return {**values, "id": number, "part": number % 2}

    def _some(self) -> tuple[str, list[int]]:
        divisor = self._rng.randint(4, 9)
        rest = self._rng.randrange(divisor)
        return f"id % {divisor} = {rest}", [key for key in self.rows if key % divisor == rest]

    def _delete(self) -> tuple[str, Callable[[], None]]:
        where, keys = self._some()

        def done() -> None:
            for key in keys:
                del self.rows[key]

        return f"DELETE FROM {self._table} WHERE {where}", done

    def _update(self) -> tuple[str, Callable[[], None]]:
        where, keys = self._some()

        def done() -> None:
            for key in keys:
                self.rows[key]["v"] += 1

        return f"UPDATE {self._table} SET v = v + 1 WHERE {where}", done

    def _add_column(self) -> tuple[str, Callable[[], None]]:
        if self._added >= EXTRA_MAX:
            return self._append()
        self._added += 1
        name = f"extra{self._added}"

        def done() -> None:
            self._columns[name] = "INT"
            for row in self.rows.values():
                row[name] = None

        return f"ALTER TABLE {self._table} ADD COLUMN {name} INT", done

    def _rename_column(self) -> tuple[str, Callable[[], None]]:
        old, new = ("s", "label") if "s" in self._columns else ("label", "s")

        def done() -> None:
            self._columns = {new if n == old else n: kind for n, kind in self._columns.items()}
            for key, row in self.rows.items():
                self.rows[key] = {new if n == old else n: value for n, value in row.items()}

        return f"ALTER TABLE {self._table} RENAME COLUMN {old} TO {new}", done

    def _widen(self) -> tuple[str, Callable[[], None]]:
        name = next((n for n, kind in self._columns.items() if kind == "INT" and n != "part"), None)
        if name is None:
            return self._append()
        widened = f"ALTER TABLE {self._table} ALTER COLUMN {name} TYPE BIGINT"
        return widened, lambda: self._columns.update({name: "BIGINT"})

    def _partition(self) -> tuple[str, Callable[[], None]]:
        field = self._partitioned_by or self._rng.choice(PARTITIONINGS)
        verb = "DROP" if self._partitioned_by else "ADD"

        def done() -> None:
            self._partitioned_by = field if verb == "ADD" else None

        return f"ALTER TABLE {self._table} {verb} PARTITION FIELD {field}", done


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
