"""Compaction of 500 small files by our own plan, rewrite and replace, against Iceberg's procedure.

Both in one warm session, on one table, in turns: each begins at the very same snapshot, to which
the table is rolled back afterwards. A time counts only when the rows are the same as before and
the files are as few as they should be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench.figures import Side, differing, in_turns, middle, reaches, rounded
from bench.lake import CPU_IS, Took, lake, sql, timed, warehouse_of
from bench.peer_demo import facts
from bench.processes import NotMeasured
from bench.result import Result, made, say
from bench.stores import workplace
from headrace.clock import SystemClock
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import embedded_catalog
from headrace.lake.iceberg.file_records import choose
from headrace.lake.iceberg.replace import replace
from headrace.lake.iceberg.replace_conflicts import BinGroup
from headrace.lake.iceberg.rewrite import rewrite
from headrace.lake.iceberg.scan import scan
from headrace.lake.iceberg.token import ProcessAt
from headrace.model.tables.evaluation import evaluate
from headrace.model.tables.plan import plan
from headrace.model.tables.settings import OptimizingSettings
from headrace.worker.warm_session import WarmSpark

FILES, FILES_QUICK = 500, 50
ROWS_PER_FILE = 20_000  # some 600 kB
PAIRS, PAIRS_QUICK = 4, 1
WARM_UP_PAIRS = 1
AIM = 1.0
TARGET_BYTES = OptimizingSettings().target_size_bytes
NAMESPACE, NAME = "bench", "events"
TABLE = f"headrace.{NAMESPACE}.{NAME}"
COLUMNS = (
    "id bigint, customer bigint, amount double, channel string, note string, placed_at timestamp"
)
OURS_IS = "scan, plan, choose, rewrite and replace, one after the other in one thread; median"
PEER_IS = (
    "CALL system.rewrite_data_files in the same session, with the same target size and its own "
    "defaults otherwise; median"
)


def run(*, quick: bool) -> Iterator[Result]:
    files = FILES_QUICK if quick else FILES
    with workplace("compaction") as folder, lake(folder) as warm:
        table = _Table.made(
            warm, TableRef(embedded_catalog(warehouse_of(folder)), (NAMESPACE,), NAME), files
        )
        ours, theirs = in_turns(
            table.measure, pairs=PAIRS_QUICK if quick else PAIRS, warm_up_pairs=WARM_UP_PAIRS
        )
    yield _result(table, ours, theirs)


@dataclass(slots=True)
class _Table:
    warm: WarmSpark
    ref: TableRef
    files: int
    bytes: int
    snapshot: int
    expected: dict[str, Any]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    steps_s: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    files_after: dict[Side, int] = field(default_factory=dict[Side, int])

    @classmethod
    def made(cls, warm: WarmSpark, ref: TableRef, files: int) -> _Table:
        say(f"making a table of {files} small files")
        sql(warm, f"CREATE NAMESPACE headrace.{NAMESPACE}")
        sql(
            warm,
            f"CREATE TABLE {TABLE} ({COLUMNS}) USING iceberg "
            "TBLPROPERTIES ('write.distribution-mode'='none')",
        )
        rows = warm.session.range(0, files * ROWS_PER_FILE, 1, files)
        rows.selectExpr(
            "id",
            "pmod(xxhash64(id, 'customer'), 1000000) AS customer",
            "pmod(xxhash64(id, 'amount'), 10000000) / 100D AS amount",
            "element_at(array('web', 'app', 'shop', 'phone'), cast(id % 4 AS int) + 1) AS channel",
            "md5(cast(id AS string)) AS note",
            "timestamp_seconds(1700000000 + id * 3) AS placed_at",
        ).writeTo(TABLE).append()
        found = scan(warm.session, ref)
        if len(found.files) != files or found.snapshot is None:
            raise NotMeasured(f"the table has {len(found.files)} files instead of {files}")
        size = sum(file.bytes for file in found.files)
        expected = facts(warm.session.table(TABLE))
        return cls(warm, ref, files, size, found.snapshot, expected)

    def measure(self, side: Side) -> Took:
        _, took = timed(self.warm, self._ours if side == "ours" else self._theirs)
        left = len(scan(self.warm.session, self.ref).files)
        most = -(-self.bytes // TARGET_BYTES) + 1
        if left > most:
            raise NotMeasured(f"{side} left {left} files where {most} are enough")
        if wrong := differing(facts(self.warm.session.table(TABLE)), self.expected):
            raise NotMeasured(f"{side} changed rows: {', '.join(wrong)} differ")
        self.files_after[side] = left
        say(f"{side}: {took.wall_s:.2f} s, {took.cpu_s:.1f} cpu-s, {left} files")
        self._roll_back()
        return took

    def _ours(self) -> None:
        session, began_s = self.warm.session, time.perf_counter()

        def ends(step: str) -> None:
            nonlocal began_s
            self.steps_s.setdefault(step, []).append(time.perf_counter() - began_s)
            began_s = time.perf_counter()

        files = scan(session, self.ref)
        settings, _ = OptimizingSettings.read(files.properties)
        due = evaluate(files, settings, {}, now_ms=SystemClock().wall_ms())
        planned = plan(files, due, settings)
        if planned is None or files.snapshot is None:
            raise NotMeasured("nothing was planned")
        ends("scan and plan")
        paths = [[file.path for file in each.files] for each in planned.bins]
        chosen = choose(session, self.ref, snapshot=files.snapshot, bins=paths)
        ends("choose")
        at = ProcessAt("bench", next(self.numbers), "bench.1")
        rewritten = rewrite(session, self.ref, chosen, at, target_bytes=TARGET_BYTES)
        ends("rewrite")
        groups = [
            BinGroup(number=inputs.number, bins=[inputs], rewritten=[output])
            for inputs, output in zip(chosen, rewritten, strict=True)
        ]
        replaced = replace(session, self.ref, groups, at)
        ends("replace")
        if replaced.conflicts:
            raise NotMeasured(f"groups conflict: {replaced.conflicts}")

    def _theirs(self) -> None:
        sql(
            self.warm,
            f"CALL headrace.system.rewrite_data_files(table => '{NAMESPACE}.{NAME}', "
            f"options => map('target-file-size-bytes', '{TARGET_BYTES}'))",
        )

    def _roll_back(self) -> None:
        """To the snapshot of all small files; what was written since goes from the disk."""
        table = f"table => '{NAMESPACE}.{NAME}'"
        sql(
            self.warm,
            f"CALL headrace.system.rollback_to_snapshot({table}, snapshot_id => {self.snapshot})",
        )
        sql(
            self.warm,
            f"CALL headrace.system.expire_snapshots({table}, "
            "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
        )


def _result(table: _Table, ours: list[Took], theirs: list[Took]) -> Result:
    our_wall_s, their_wall_s = ([took.wall_s for took in side] for side in (ours, theirs))
    our_cpu_s, their_cpu_s = ([took.cpu_s for took in side] for side in (ours, theirs))
    ratio = middle(our_wall_s) / middle(their_wall_s)
    return made(
        "compaction",
        ours=middle(our_wall_s),
        peer=middle(their_wall_s),
        unit="s",
        aim=(AIM, "not slower than Iceberg's own procedure, wall time"),
        met=reaches(ratio, AIM, better="lower"),
        ours_is=OURS_IS,
        peer_is=PEER_IS,
        files=table.files,
        mb=round(table.bytes / 1e6, 1),
        rows=table.files * ROWS_PER_FILE,
        columns=6,
        files_after=table.files_after,
        pairs=len(ours),
        compared="count, and sum and xor of hashes of each column and of whole rows, each time",
        wall_s_in_turn={"ours": rounded(our_wall_s), "peer": rounded(their_wall_s)},
        cpu_s={"ours": middle(our_cpu_s), "peer": middle(their_cpu_s)},
        cpu_ratio=round(middle(our_cpu_s) / middle(their_cpu_s), 3),
        cpu_is=CPU_IS,
        steps_of_ours_s={
            step: middle(took[WARM_UP_PAIRS:]) for step, took in table.steps_s.items()
        },
        cpu_s_in_turn={"ours": rounded(our_cpu_s), "peer": rounded(their_cpu_s)},
        jvm_mb={"ours": _most_mb(ours), "peer": _most_mb(theirs)},
    )


def _most_mb(side: list[Took]) -> float:
    return round(max(took.jvm_mb for took in side), 1)
