"""Planning a table of 100,000 files in 100 partitions, as a worker does it for a PLAN task.

Peer: Iceberg's own planner of rewrites, which stays in the JVM. The files were never written; their
metadata was, and nothing else is read. The coordinator has no part in it but to store the answer,
whose size is told.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from bench.figures import Side, in_turns, middle, rounded
from bench.lake import Took, lake, timed
from bench.many_files import NAME, NAMESPACE, PARTITIONS, ref_in
from bench.processes import NotMeasured
from bench.result import ROOT, Result, made, say
from bench.stores import workplace
from headrace.clock import SystemClock
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.catalogs import load_table
from headrace.lake.iceberg.table_format import IcebergFormat
from headrace.protocol.tables import CatalogSpec, Planned, PlanPayload, TableIdentifier
from headrace.spark.jvm_bridge import jvm, string_map
from headrace.worker.execution import Execution
from headrace.worker.tables.catalogs import TableWork
from headrace.worker.tables.evaluation import plan_table
from headrace.worker.warm_session import WarmSpark

FILES, FILES_QUICK = 100_000, 10_000
PAIRS, PAIRS_QUICK = 4, 2
WARM_UP_PAIRS = 1
AIM_S = 5.0
MAKE_MAX_S = 600.0
PEER_IS = "Iceberg's BinPackRewriteFilePlanner, called once through py4j; median"


class _Quiet:
    """Stands for the execution of a task that nobody watches."""

    def touch(self) -> None: ...

    def check(self) -> None: ...

    def set_progress(self, step: str) -> None: ...


def run(*, quick: bool) -> Iterator[Result]:
    files = FILES_QUICK if quick else FILES
    with workplace("planning") as folder:
        say(f"making a table of {files:,} files that were never written")
        _make(folder, files)
        with lake(folder) as warm:
            contest = _Contest(warm, ref_in(folder), files)
            ours, theirs = in_turns(
                contest.measure, pairs=PAIRS_QUICK if quick else PAIRS, warm_up_pairs=WARM_UP_PAIRS
            )
    yield _result(contest, ours, theirs)


def _make(folder: Path, files: int) -> None:
    command = [sys.executable, "-m", "bench.many_files", str(folder), str(files)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=MAKE_MAX_S, check=False
    )
    if done.returncode:
        raise NotMeasured(f"the table could not be made: {done.stderr[-2000:]}")


class _Contest:
    def __init__(self, warm: WarmSpark, ref: TableRef, files: int) -> None:
        self._warm, self._ref, self.files = warm, ref, files
        self.python_mb = 0.0  # from the first plan on: later ones find room that is there already
        self.answer_bytes = self.bins = self.partitions_left = self.peer_groups = 0

    def measure(self, side: Side) -> Took:
        if side == "ours":
            planned, took = timed(self._warm, self._ours)
            self._keep(planned)
            self.python_mb = max(self.python_mb, took.python_mb)
        else:
            self.peer_groups, took = timed(self._warm, self._theirs)
            if not self.peer_groups:
                raise NotMeasured("the peer has planned nothing")
        say(f"{side}: {took.wall_s:.2f} s, {took.python_mb:.0f} MB more, JVM {took.jvm_mb:.0f} MB")
        return took

    def _ours(self) -> Planned:
        clock, catalog = SystemClock(), self._ref.catalog
        spec = CatalogSpec(name=catalog.name, type="embedded")
        payload = PlanPayload(
            catalog=spec,
            table=TableIdentifier(id="bench", namespace=(NAMESPACE,), name=NAME),
            now_ms=clock.wall_ms(),
        )
        quiet = cast("Execution", _Quiet())
        work = TableWork(quiet, self._warm.session, clock, catalog, IcebergFormat())
        return plan_table(work, payload)

    def _theirs(self) -> int:
        session = self._warm.session
        planner: Any = jvm(session).org.apache.iceberg.actions.BinPackRewriteFilePlanner(
            load_table(session, self._ref)
        )
        planner.init(string_map(session, {}))
        return int(planner.plan().totalGroupCount())

    def _keep(self, planned: Planned) -> None:
        if planned.type is None:
            raise NotMeasured(f"nothing was planned: {planned.reason}")
        self.answer_bytes = len(planned.model_dump_json())
        self.bins = sum(map(len, planned.tasks))
        self.partitions_left = planned.left


def _result(contest: _Contest, ours: list[Took], theirs: list[Took]) -> Result:
    our_wall_s, their_wall_s = ([took.wall_s for took in side] for side in (ours, theirs))
    return made(
        "planning",
        ours=middle(our_wall_s),
        peer=middle(their_wall_s),
        unit="s",
        aim=(AIM_S, f"under {AIM_S:.0f} s, on the worker"),
        met=middle(our_wall_s) < AIM_S,
        ours_is="a PLAN task's whole work: probe, scan, evaluate, plan, and the answer; median",
        peer_is=PEER_IS,
        files=contest.files,
        partitions=PARTITIONS,
        wall_s_in_turn={"ours": rounded(our_wall_s), "peer": rounded(their_wall_s)},
        cpu_s={
            "ours": middle([took.cpu_s for took in ours]),
            "peer": middle([took.cpu_s for took in theirs]),
        },
        python_mb_more_at_its_most=round(contest.python_mb, 1),
        jvm_mb_at_its_most=round(max(took.jvm_mb for took in ours), 1),
        on_the_coordinator="nothing but the rows of the answer",
        answer_bytes=contest.answer_bytes,
        bins_planned=contest.bins,
        partitions_left_for_the_next_process=contest.partitions_left,
        peer_groups=contest.peer_groups,
    )
