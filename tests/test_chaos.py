"""The verdict of `make chaos` can be a bad one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from headrace.client.views import JobView, PipelineView
from headrace.jobfile.reader import read_job
from tests.chaos import campaign as campaigns
from tests.chaos import faults
from tests.chaos.__main__ import verdict
from tests.chaos.campaign import Campaign, Limits
from tests.chaos.leftovers import empty_below
from tests.chaos.load import BATCH_SPLITS, ROWS_A_SPLIT, Load
from tests.chaos.report import Report, Verdict, verdict_of
from tests.chaos.world import World
from tests.crash.lake import TableFiles, files_of

SHORT_S = 0.1  # of a wait that a test wants to be too long; the others are as long as always
GIVEN = BATCH_SPLITS * ROWS_A_SPLIT
PARTS = ("read FakeSource-1", "Iceberg-1", "LocalFile-1", "Jdbc-1")


@dataclass
class Odd:
    """What is wrong in a run; nothing, unless a test says so."""

    stuck_at: int | None = None  # the epoch beyond which no stream gets
    compactions: int = 1
    lake_rows: Sequence[int] = range(1, GIVEN + 1)
    rows_told: int = GIVEN
    breaks_at_fault: bool = False
    gone: Sequence[str] = ()
    orphans: Sequence[str] = ()
    left: Sequence[str] = ()
    left_running: Sequence[str] = ()
    leads: bool = True
    takes_place: bool = True
    batch_status: str = "FINISHED"
    limits: Limits = Limits()  # noqa: RUF009 - it is frozen


class QuickLoad(Load):
    """Is done with what it is asked for at once."""

    odd: Odd
    epochs_done = 0
    cancelled = False

    def submit(self) -> bool:
        self.id = self.name
        return True

    def cancel(self) -> bool:
        self.cancelled = True
        return True

    def look(self) -> JobView:
        if self.odd.stuck_at is None or self.epochs_done < self.odd.stuck_at:
            self.epochs_done += 1
        read, *sinks = PARTS
        pipeline = PipelineView(
            number=1,
            status="RUNNING",
            epoch=self.epochs_done,
            rows_in=self.odd.rows_told,
            read={read: self.odd.rows_told},
            written=dict.fromkeys(sinks, self.odd.rows_told),
        )
        running = "CANCELED" if self.cancelled else "RUNNING"
        view = JobView(
            id=self.name,
            name=self.name,
            group="default",
            status=running if self.streams else self.odd.batch_status,
            created_at_ms=1,
            pipelines=(pipeline,),
        )
        self.heard(view)
        return view

    def rows_by_target(self) -> Mapping[str, Sequence[int]]:
        whole = range(1, len(self.odd.lake_rows) + 1)
        return {"lake": self.odd.lake_rows, "files": whole, "database": whole}

    def compactions(self) -> int:
        return self.odd.compactions

    def files(self) -> TableFiles:
        return TableFiles(gone=list(self.odd.gone), staged=[], orphans=list(self.odd.orphans))

    def left_behind(self) -> list[str]:
        return list(self.odd.left)


class QuietWorld(World):
    """Nobody is in it."""

    def __init__(self, odd: Odd) -> None:
        self.odd, self.ended_by_themselves = odd, []

    def revive(self) -> None: ...

    def lose_nothing_more(self) -> None: ...

    def left_behind(self) -> list[str]:
        return []

    def shut_down(self) -> list[str]:
        return list(self.odd.left_running)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "LOOK_S", 0.001)
    monkeypatch.setattr(campaigns, "PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr(campaigns, "TOGETHER_WITHIN_S", 0.0)
    monkeypatch.setattr(campaigns, "COMPACTED_FROM_MINUTES", 0.0)


def run(monkeypatch: pytest.MonkeyPatch, odd: Odd) -> Report:
    """A run with one kind of fault, which changes nothing."""

    def strike(*_: object) -> faults.Struck | None:
        if odd.breaks_at_fault:
            raise RuntimeError("the harness itself")
        return faults.Struck("nobody", took_place=lambda: odd.takes_place) if odd.leads else None

    only = [faults.Fault("harmless", strike)]
    for name in ("KINDS", "DECK"):
        monkeypatch.setattr(campaigns, name, only)

    def new_load(name: str, *, streams: bool, world: World) -> Load:
        load = QuickLoad(name, streams, world)
        load.odd = odd
        return load

    report = Report()
    Campaign(
        QuietWorld(odd), report, seed=1, say=lambda _: None, new_load=new_load, limits=odd.limits
    ).run(minutes=0)
    return report


def test_a_run_without_a_flaw_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, Odd())

    assert report.problems == []
    assert report.batches
    assert report.struck["harmless"]


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        (Odd(lake_rows=[*range(1, 10), *range(11, GIVEN + 1)]), "1 lost, 0 doubled"),
        (Odd(lake_rows=[1, *range(1, GIVEN + 1)]), "0 lost, 1 doubled"),
        # The end of a stream is missing in all its targets alike: only the job knows of it.
        (Odd(rows_told=GIVEN + 500), "stream1, lake: 3,000 rows instead of 3,500, 500 lost"),
        (Odd(rows_told=GIVEN - 500), "stream1 counts"),
        (
            Odd(stuck_at=0, limits=Limits(first_epochs_s=SHORT_S, recovery_s=SHORT_S)),
            "had no two epochs",
        ),
        (Odd(stuck_at=6, limits=Limits(recovery_s=SHORT_S)), "streams stand still at epochs"),
        (Odd(compactions=0), "no table was ever compacted"),
        (Odd(breaks_at_fault=True), "the faults broke off: RuntimeError: the harness itself"),
        (Odd(gone=["data/1.parquet"]), "gone, though a snapshot of stream1 refers to it"),
        (Odd(orphans=["m0.avro"] * 10_000), "metadata files that nothing refers to"),
        (Odd(left=["stage/1"], limits=Limits(leftovers_s=SHORT_S)), "left behind: stage/1"),
        (Odd(left_running=["left behind: process 17"]), "left behind: process 17"),
        (
            Odd(leads=False, limits=Limits(strike_s=SHORT_S)),
            "not within 0.1 s: somebody to harmless",
        ),
        (Odd(takes_place=False), "a fault never took place: harmless"),
        (Odd(batch_status="FAILED"), "batch1 is FAILED"),
        (
            Odd(batch_status="RUNNING", limits=Limits(rest_s=SHORT_S)),
            "not within 0.1 s: the batches end",
        ),
    ],
)
def test_each_flaw_of_a_run_is_a_problem(
    odd: Odd, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(monkeypatch, odd)

    assert not report.is_clean
    assert any(problem in found for found in report.problems), report.problems
    assert report.verdicts, "it is compared whatever happened"


def test_rows_that_a_job_takes_back_are_a_problem() -> None:
    load = QuickLoad("stream1", streams=True, world=cast("World", None))
    load.odd = Odd(rows_told=1000)
    load.look()
    load.odd = Odd(rows_told=500)
    load.look()

    assert load.completed == 1000
    assert load.problems == ["stream1 had completed 1,000 rows, and says 500 later"]


def test_a_kind_of_fault_that_a_long_run_never_had_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaigns, "ALL_KINDS_FROM_MINUTES", 0.0)
    monkeypatch.setattr(Campaign, "_provoke", _nothing)

    report = run(monkeypatch, Odd())

    assert "a fault never took place: harmless" in report.problems


def _lost_row(_: Path, report: Report) -> None:
    report.judge(Verdict("job", "lake", expected=3, found=2, lost=1, doubled=0))


def _exception(_: Path, report: Report) -> None:
    report.judge(Verdict("job", "lake", expected=3, found=3, lost=0, doubled=0))
    raise RuntimeError("the world did not end")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("bad", [_lost_row, _exception, _interrupt])
def test_a_bad_run_is_shown_as_that_and_its_folder_stays(
    bad: Callable[[Path, Report], None], tmp_path: Path
) -> None:
    folder, out = tmp_path / "kept", StringIO()
    folder.mkdir()

    code = verdict(Console(file=out, width=200), folder, bad, keeps=False)

    assert code == 1
    assert folder.exists()
    assert str(folder) in out.getvalue()
    assert "NOT clean: 1 problems" in out.getvalue()
    assert "Rows" in out.getvalue(), "its table is shown"


def _nothing(_: Path, __: Report) -> None: ...


def test_the_folder_of_a_clean_run_stays_when_it_was_asked_for(tmp_path: Path) -> None:
    for keeps in (True, False):
        out = StringIO()

        assert verdict(Console(file=out), tmp_path, _nothing, keeps=keeps) == 0
        assert tmp_path.exists() == keeps
        assert "clean" in out.getvalue()


@pytest.mark.parametrize(
    ("rows", "lost", "doubled"),
    [([1, 2, 3], 0, 0), ([1, 3], 1, 0), ([1, 2, 2, 3], 0, 1), ([2, 2], 2, 1), ([1, 2, 3, 4], 0, 0)],
)
def test_rows_that_are_lost_or_doubled_are_counted(
    rows: list[int], lost: int, doubled: int
) -> None:
    verdict = verdict_of("job", "lake", rows, last=3)

    assert (verdict.lost, verdict.doubled) == (lost, doubled)
    assert verdict.is_right == (rows == [1, 2, 3])


def test_the_jobs_of_a_run_have_the_default_settings(tmp_path: Path) -> None:
    class Nowhere:
        class database:  # noqa: N801
            @staticmethod
            def sink(of: str, table: str, *options: str) -> str:
                parts = ['url = "jdbc:postgresql://h/d"', 'driver = "org.postgresql.Driver"']
                parts += ["generate_sink_sql = true", 'database = "d"', f'table = "{table}"']
                return f'Jdbc {{ plugin_input = "{of}", {", ".join([*parts, *options])} }}'

        class made:  # noqa: N801
            folder = tmp_path

    text = Load("stream1", streams=True, world=cast("World", Nowhere)).text()

    assert "retry" not in text
    assert read_job("job.conf", text=text).secrets, "there is one to be kept, and forgotten"


def test_an_empty_folder_of_a_stage_is_found(tmp_path: Path) -> None:
    (tmp_path / "_headrace" / "kept").mkdir(parents=True)
    (tmp_path / "_headrace" / "kept" / "1.json").write_text("{}")
    empty = tmp_path / "_headrace" / "stage" / "1"
    empty.mkdir(parents=True)

    assert empty_below([tmp_path]) == [str(empty)]


def test_metadata_that_no_version_of_a_table_refers_to_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "ns" / "t" / "metadata"
    folder.mkdir(parents=True)
    for name in ("00001-a", "00002-b", "00003-c", "00003-killed"):
        (folder / f"{name}.metadata.json").write_text("{}")
    (folder / "killed-m0.avro").write_bytes(b"")
    (folder / ".killed-m0.avro.crc").write_bytes(b"")
    current = folder / "00003-c.metadata.json"
    log = [{"metadata-file": f"file://{folder}/00002-b.metadata.json"}]
    gone = {"manifest-list": f"file://{folder}/snap-1.avro"}
    current.write_text(json.dumps({"metadata-log": log, "snapshots": [gone]}))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as catalog, catalog:
        catalog.execute(
            "CREATE TABLE iceberg_tables (metadata_location, table_namespace, table_name)"
        )
        catalog.execute("INSERT INTO iceberg_tables VALUES (?, 'ns', 't')", [f"file:{current}"])

    found = files_of(tmp_path, "ns.t")

    killed = [f"{folder}/00003-killed.metadata.json", f"{folder}/killed-m0.avro"]
    assert found == TableFiles(gone=[f"{folder}/snap-1.avro"], staged=[], orphans=killed)
