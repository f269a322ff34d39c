"""From the command to the first committed row of `headrace run`, with jars and class data cached.

Peer: a script that starts Spark with the same jars by spark.jars and appends as many rows of the
same columns. Both find their table made by the run before, which is thrown away. The end is the
time that Iceberg wrote into the snapshot, by the clock of the same machine; the catalog shows it
a few milliseconds later.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from bench.figures import Side, in_turns, middle, reaches, rounded
from bench.processes import NotMeasured, child, until
from bench.result import ROOT, Result, made
from bench.stores import workplace
from headrace.config import Settings
from headrace.spark.installation import find_java, resolve_jars

PAIRS, PAIRS_QUICK = 4, 2
WARM_UP_PAIRS = 1
ROWS = 1_000
RUN_MAX_S = 300.0  # the first run may fetch jars and write a class-data archive
AIM, AIM_S = 1.0, 10.0
TABLE = ("demo", "events")


@dataclass(frozen=True, slots=True)
class Took:
    first_row_s: float
    exit_s: float


def run(*, quick: bool) -> Iterator[Result]:
    pairs = PAIRS_QUICK if quick else PAIRS
    with workplace("first") as folder:
        commands = {"ours": _ours(folder), "peer": _peer(folder)}
        warehouses = {"ours": folder / "home" / "warehouse", "peer": folder / "peer"}

        def measure(side: Side) -> Took:
            return _time(side, commands[side], warehouses[side], folder)

        ours, theirs = in_turns(measure, pairs=pairs, warm_up_pairs=WARM_UP_PAIRS)
    yield _result(ours, theirs)


def _result(ours: Sequence[Took], theirs: Sequence[Took]) -> Result:
    our_s, their_s = ([took.first_row_s for took in side] for side in (ours, theirs))
    ratio = middle(our_s) / middle(their_s)
    return made(
        "first_row",
        ours=middle(our_s),
        peer=middle(their_s),
        unit="s",
        aim=(AIM, f"no later than the script; under {AIM_S:.0f} s on a calm machine"),
        met=reaches(ratio, AIM, better="lower"),
        under_10_s=middle(our_s) < AIM_S,
        ours_is="`headrace run`, second start: a coordinator, a worker and a JVM; median",
        peer_is="a PySpark script with the same jars by spark.jars; median",
        first_row_s_in_turn={"ours": rounded(our_s), "peer": rounded(their_s)},
        command_to_exit_s={
            "ours": middle([took.exit_s for took in ours]),
            "peer": middle([took.exit_s for took in theirs]),
        },
        rows=ROWS,
        pairs=len(ours),
    )


def _ours(folder: Path) -> Sequence[str]:
    """The demo with fewer rows."""
    job = folder / "job.conf"
    text = (ROOT / "examples" / "demo.conf").read_text(encoding="utf-8")
    fewer = text.replace("row.num = 500000", f"row.num = {ROWS // 2}")
    if fewer == text:
        raise NotMeasured("examples/demo.conf no longer says row.num = 500000")
    job.write_text(fewer, encoding="utf-8")
    return ["-m", "headrace", "run", str(job), "--home", str(folder / "home")]


def _peer(folder: Path) -> Sequence[str]:
    warehouse = folder / "peer"
    warehouse.mkdir()
    jars = resolve_jars(Settings().cache_dir, java=find_java(), say=print)
    named = ",".join(map(str, jars))
    return ["-m", "bench.peer_first_row", named, str(warehouse), str(ROWS)]


def _time(who: str, command: Sequence[str], warehouse: Path, folder: Path) -> Took:
    began_ms, began_s = time.time() * 1000, time.perf_counter()
    with child(who, command, folder=folder) as started:
        until(lambda: started.popen.poll() is not None, limit_s=RUN_MAX_S, what=f"{who} ends")
        exit_s = time.perf_counter() - began_s
        if started.popen.returncode != 0:
            started.check()
    committed_ms, rows = newest_snapshot(warehouse)
    if rows != ROWS or committed_ms < began_ms:
        raise NotMeasured(f"{who} committed {rows} rows instead of {ROWS}")
    return Took((committed_ms - began_ms) / 1000, exit_s)


def newest_snapshot(warehouse: Path) -> tuple[int, int]:
    """When the table's current snapshot was made, and how many rows it added."""
    with closing(sqlite3.connect(warehouse / "catalog.db")) as catalog:
        (location,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables"
            " WHERE table_namespace = ? AND table_name = ?",
            TABLE,
        ).fetchone()
    path = Path(unquote(str(location).removeprefix("file:")).replace("///", "/"))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    current = metadata["current-snapshot-id"]
    (snapshot,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == current]
    return int(snapshot["timestamp-ms"]), int(snapshot["summary"]["added-records"])
