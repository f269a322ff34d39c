"""Writers that know nothing of us: they append, delete, rewrite, expire, drop and switch off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from headrace.model.tables.files import DeleteKind
from tests.simulation.lake import ENABLED, PARTITIONS, QUOTA, Delete, Entry, Lake, Row, Table
from tests.simulation.scenario import Scenario
from tests.simulation.world import Process, World

VALUES = 6
DUE = 3  # files of one partition, from which on a table is to be optimized
PAUSE_S = (0.1, 2.5)  # between two things that people do
AWAY_S = (0.5, 8.0)
OUTAGE_S = (140.0, 150.0)  # longer than anybody asks how a commit ended


def name_of(number: int) -> str:
    return f"t{number}"


def make_tables(lake: Lake, scenario: Scenario, random: Random) -> None:
    for number in range(scenario.tables):
        make_table(lake, name_of(number), scenario, random, files=scenario.table_files)


def make_table(lake: Lake, name: str, scenario: Scenario, random: Random, *, files: int) -> None:
    table = lake.make(name, {QUOTA: str(scenario.quota)})
    for number in range(files):
        value = 0 if number < DUE else random.randrange(VALUES)
        append_rows(lake, table, value, random.randint(1, 2))


class People:
    """One actor for all of them. It is never struck: what it does is done to us."""

    def __init__(self, world: World, lake: Lake, scenario: Scenario) -> None:
        self._world, self._lake, self._scenario = world, lake, scenario

    def __call__(self, process: Process) -> None:
        random = process.random
        for _ in range(self._scenario.edits if self._scenario.tables else 0):
            self._world.sleep(random.uniform(*PAUSE_S))
            kind = random.choice(self._scenario.edit_kinds)
            name = name_of(random.randrange(self._scenario.tables))
            self._world.tell(f"{kind} {name}")
            self._do(kind, name, random)

    def _do(self, kind: str, name: str, random: Random) -> None:
        lake = self._lake
        if kind == "drop":
            make_table(lake, name, self._scenario, random, files=random.randint(1, 4))
        elif kind in {"away", "outage"}:
            length_s = random.uniform(*(AWAY_S if kind == "away" else OUTAGE_S))
            lake.away_until_s = self._world.now_s + length_s
        else:
            EDITS[kind](lake, lake.tables[name], random)


def append(lake: Lake, table: Table, random: Random) -> None:
    append_rows(lake, table, random.randrange(VALUES), random.randint(1, 2))


def append_rows(
    lake: Lake, table: Table, value: int, rows: int, deletes: tuple[Delete, ...] = ()
) -> None:
    made = tuple(lake.new_row(value) for _ in range(rows))
    table.truth |= set(made)
    entry = _store(table, value % PARTITIONS, made)
    table.commit([*table.current.files, entry], [*table.current.deletes, *deletes])


def _store(table: Table, partition: int, rows: tuple[Row, ...]) -> Entry:
    sequence = table.sequence + 1  # of the commit that follows
    path = f"{table.uuid}/f{sequence}"
    table.stored[path] = rows
    return Entry(path, partition, sequence)


def upsert(lake: Lake, table: Table, random: Random) -> None:
    """As Flink writes a change: every earlier row of that value goes, and a new one comes."""
    value = random.randrange(VALUES)
    table.truth -= {row for row in table.truth if row[0] == value}
    sequence = table.sequence + 1
    gone = Delete(
        f"{table.uuid}/d{sequence}",
        *(DeleteKind.EQUALITY, value % PARTITIONS, sequence),
        file=None,
        rows=frozenset(),
        value=value,
    )
    append_rows(lake, table, value, 1, (gone,))


def delete(_lake: Lake, table: Table, random: Random) -> None:
    """One row, by its position."""
    current, sequence = table.current, table.sequence + 1
    if not current.files:
        return
    entry = random.choice(current.files)
    if not (rows := table.live(current, entry)):
        return
    row = random.choice(rows)
    table.truth.discard(row)
    gone = Delete(
        f"{table.uuid}/d{sequence}",
        *(DeleteKind.POSITION, entry.partition, sequence),
        file=entry.path,
        rows=frozenset({row}),
        value=None,
    )
    table.commit(current.files, [*current.deletes, gone])


def remove(_lake: Lake, table: Table, random: Random) -> None:
    """A whole file, with its rows."""
    current = table.current
    if not current.files:
        return
    remove_entry(table, random.choice(current.files))


def remove_entry(table: Table, entry: Entry) -> None:
    current = table.current
    table.truth -= set(table.live(current, entry))
    table.commit([each for each in current.files if each is not entry], current.deletes)


def rewrite(_lake: Lake, table: Table, random: Random) -> None:
    """Somebody else compacts: two files of a partition become one."""
    current = table.current
    partition = random.randrange(PARTITIONS)
    two = [each for each in current.files if each.partition == partition][:2]
    rows = tuple(row for each in two for row in table.live(current, each))
    if rows:
        entry = _store(table, partition, rows)
        table.commit([*(e for e in current.files if e not in two), entry], current.deletes)


def expire(_lake: Lake, table: Table, _random: Random) -> None:
    table.expire()


def switch(_lake: Lake, table: Table, _random: Random) -> None:
    off = table.properties.get(ENABLED) == "false"
    table.set_property(ENABLED, "true" if off else "false")


EDITS: Mapping[str, Callable[[Lake, Table, Random], None]] = {
    "append": append,
    "upsert": upsert,
    "delete": delete,
    "remove": remove,
    "rewrite": rewrite,
    "expire": expire,
    "switch": switch,
}
