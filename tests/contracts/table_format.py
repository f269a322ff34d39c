"""What every table format must show: worker/tables relies on each of these, and on nothing else.

A format proves itself by a class that inherits `TableFormatContract` and says in `lake` how tables
of it are made, changed and read by somebody who knows nothing of Headrace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headrace.clock import Clock
from headrace.errors import Fenced, Refused, TokenSpent
from headrace.lake.catalog import TableMissing, TableRef, ignore_progress
from headrace.lake.table_format import (
    AnyTableFormat,
    BinInputs,
    Probe,
    ProcessExecution,
    Replaced,
    RewrittenBin,
)
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, Moment, SpentBy, now
from headrace.model.tables.files import Partition, TableFiles

OWNER = "owner"
ALL = {0, 1}  # bins: one for each partition


@dataclass(slots=True)
class FormatHarness(ABC):
    """A format, and a table of it with two partitions of at least two files each."""

    format: AnyTableFormat
    session: Any
    clock: Clock
    ref: TableRef
    target_bytes: int

    @abstractmethod
    def rows(self) -> Sequence[object]:
        """All rows of the table, sorted, as a stranger reads them."""

    @abstractmethod
    def append(self) -> None:
        """A stranger commits one more row."""

    @abstractmethod
    def remove_file(self, path: str) -> None:
        """A stranger commits that a data file is gone, with its rows."""

    @abstractmethod
    def make_anew(self) -> None:
        """Drop the table, and make one of the same name, which has files, too."""

    @abstractmethod
    def staged(self, process: ProcessExecution) -> int:
        """How many files of the process lie at the table, committed or not."""

    # -- what a worker asks, shortened ---------------------------------------------------

    def probe(self) -> Probe:
        return self.format.probe(self.session, self.ref)

    def scan(self) -> TableFiles:
        return self.format.scan(self.session, self.ref, filter=None, on_progress=ignore_progress)

    def choose(self, bins: Mapping[int, Sequence[str]], snapshot: int) -> Sequence[BinInputs]:
        return self.format.choose(
            self.session, self.ref, snapshot=snapshot, bins=bins, on_progress=ignore_progress
        )

    def rewrite(self, inputs: Sequence[BinInputs], process: ProcessExecution) -> Made:
        made = self.format.rewrite(
            self.session, self.ref, inputs, process, target_bytes=self.target_bytes
        )
        return Made(inputs, {each.number: each for each in made}, process)

    def replace(self, made: Made, process: ProcessExecution | None = None) -> Replaced:
        return self.format.replace(
            self.session,
            self.ref,
            made.inputs,
            made.rewritten,
            process or made.process,
            clock=self.clock,
            deadline_s=COMMIT_DEADLINE_S,
        )

    def give_up(self, process: ProcessExecution) -> SpentBy:
        spent = self.format.give_up(
            self.session, self.ref, process, clock=self.clock, deadline_s=COMMIT_DEADLINE_S
        )
        return spent.by

    def spent_by(self, process: ProcessExecution) -> SpentBy | None:
        spent = self.format.look(self.session, self.ref, process)
        return None if spent is None else spent.by

    def look_replaced(self, process: ProcessExecution) -> Replaced | None:
        return self.format.look_replaced(self.session, self.ref, process)

    def discard(self, process: ProcessExecution) -> int:
        return self.format.discard(self.session, self.ref, process)

    # -- whole steps ---------------------------------------------------------------------

    def bins(self, files: TableFiles) -> Mapping[int, Sequence[str]]:
        """All files, a bin for each partition."""
        found: dict[Partition, list[str]] = {}
        for file in files.files:
            found.setdefault(file.partition, []).append(file.path)
        return dict(enumerate(found.values()))

    def planned(self) -> Sequence[BinInputs]:
        files = self.scan()
        assert files.snapshot is not None
        return self.choose(self.bins(files), files.snapshot)

    def rewritten(self, process: ProcessExecution) -> Made:
        return self.rewrite(self.planned(), process)


@dataclass(frozen=True, slots=True)
class Made:
    """Bins that were rewritten, and are not committed."""

    inputs: Sequence[BinInputs]
    rewritten: Mapping[int, RewrittenBin]
    process: ProcessExecution
    paths: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        paths = [path for each in self.rewritten.values() for path in each.paths]
        object.__setattr__(self, "paths", paths)


def process(number: int = 1, execution: str = "t1.1") -> ProcessExecution:
    return ProcessExecution(OWNER, number, execution)


class TableFormatContract:
    @pytest.fixture
    def lake(self) -> FormatHarness:
        raise NotImplementedError

    def test_a_catalog_lists_the_tables_that_are_wanted_and_counts_the_others(
        self, lake: FormatHarness
    ) -> None:
        ref = lake.ref

        def listed(name: str) -> tuple[Sequence[str], int]:
            found = lake.format.list_tables(
                lake.session,
                ref.catalog,
                wanted=lambda here, each: (here, each) == (ref.namespace, name),
                tables_max=10,
                on_progress=ignore_progress,
            )
            assert not found.failed
            return found.tables[ref.namespace], found.others

        assert ref.namespace in lake.format.list_namespaces(lake.session, ref.catalog)
        wanted, others = listed(ref.name)
        assert wanted == [ref.name]
        assert listed("nobody") == ([], others + 1)

    def test_a_table_that_is_not_there_is_missing_whatever_is_asked(
        self, lake: FormatHarness
    ) -> None:
        lake.ref = replace(lake.ref, name="nobody")
        asked = (lake.probe, lake.scan, lambda: lake.spent_by(process()))
        for ask in (*asked, lambda: lake.format.uuid(lake.session, lake.ref)):
            with pytest.raises(TableMissing):
                ask()

    def test_a_probe_differs_exactly_when_the_table_was_changed(self, lake: FormatHarness) -> None:
        first = lake.probe()
        assert lake.probe() == first
        assert first.uuid == lake.format.uuid(lake.session, lake.ref)
        lake.append()
        second = lake.probe()
        assert (second.uuid, second.pointer == first.pointer) == (first.uuid, False)
        assert second.snapshot != first.snapshot

    def test_a_probe_counts_what_a_scan_finds(self, lake: FormatHarness) -> None:
        seen, files = lake.probe(), lake.scan()
        assert (seen.snapshot, seen.files) == (files.snapshot, len(files.files))
        assert seen.rows == sum(file.rows for file in files.files) == len(lake.rows())

    def test_what_is_chosen_is_what_was_scanned(self, lake: FormatHarness) -> None:
        files = lake.scan()
        assert files.snapshot is not None
        bins = {number + 7: paths for number, paths in lake.bins(files).items()}
        chosen = lake.choose(bins, files.snapshot)
        assert {each.number: list(each.paths) for each in chosen} == bins
        assert [each.number for each in chosen] == list(bins)
        rows = {file.path: file.rows for file in files.files}
        assert [each.rows for each in chosen] == [
            sum(rows[path] for path in paths) for paths in bins.values()
        ]

    def test_what_the_planned_snapshot_has_not_is_refused(self, lake: FormatHarness) -> None:
        files = lake.scan()
        assert files.snapshot is not None
        with pytest.raises(Refused):
            lake.choose({0: ["nowhere"]}, files.snapshot)
        with pytest.raises(Refused):
            lake.choose(lake.bins(files), files.snapshot + 1)

    def test_a_rewrite_stages_and_changes_nothing(self, lake: FormatHarness) -> None:
        before, rows = lake.probe(), lake.rows()
        made = lake.rewritten(process())
        assert set(made.rewritten) == ALL
        assert lake.staged(process()) == len(made.paths) > 0
        assert (lake.probe(), lake.rows()) == (before, rows)
        assert (lake.spent_by(process()), lake.look_replaced(process())) == (None, None)

    def test_what_was_rewritten_is_sent_as_a_record_that_tells_its_number(
        self, lake: FormatHarness
    ) -> None:
        for number, each in lake.rewritten(process()).rewritten.items():
            record = each.record()
            assert record["number"] == number
            assert lake.format.read_rewritten(record) == each

    @pytest.mark.req("E1")
    def test_a_replacement_lands_once_and_the_second_is_told_so(self, lake: FormatHarness) -> None:
        rows, files = lake.rows(), lake.scan()
        made = lake.rewritten(process())
        first = lake.replace(made)
        assert (first.already, first.groups, dict(first.conflicts)) == (False, ALL, {})
        assert first.snapshot == lake.scan().snapshot
        assert len(lake.scan().files) < len(files.files)

        second = lake.replace(made, process(execution="t1.2"))
        assert second.already
        assert (second.snapshot, second.groups) == (first.snapshot, first.groups)
        assert lake.look_replaced(process()) == second
        assert lake.spent_by(process()) is SpentBy.DATA
        assert lake.format.spent_number(lake.probe(), OWNER) == 1
        assert lake.rows() == rows

    @pytest.mark.req("E1")
    def test_what_was_aborted_is_never_replaced(self, lake: FormatHarness) -> None:
        rows, made = lake.rows(), lake.rewritten(process())
        assert lake.format.spent_number(lake.probe(), OWNER) == 0
        assert lake.give_up(process()) is SpentBy.ABORT
        assert lake.give_up(process(execution="t1.2")) is SpentBy.ABORT
        with pytest.raises(TokenSpent):
            lake.replace(made)
        with pytest.raises(TokenSpent):
            lake.look_replaced(process())
        assert lake.spent_by(process()) is SpentBy.ABORT
        assert lake.rows() == rows

    @pytest.mark.req("E3")
    def test_an_abort_after_the_commit_finds_the_commit(self, lake: FormatHarness) -> None:
        made = lake.rewritten(process())
        landed = lake.replace(made)
        assert lake.give_up(process(execution="t1.2")) is SpentBy.DATA
        assert lake.look_replaced(process()) == replace(landed, already=True)

    def test_a_later_process_refuses_those_before_it(self, lake: FormatHarness) -> None:
        lake.give_up(process(number=2))
        assert lake.spent_by(process(number=1)) is not None
        assert lake.spent_by(process(number=3)) is None
        assert lake.format.spent_number(lake.probe(), OWNER) == 2
        assert lake.format.spent_number(lake.probe(), "another") == 0

    @pytest.mark.req("E1")
    def test_a_commit_past_its_deadline_is_refused(self, lake: FormatHarness) -> None:
        at, rows, made = now(lake.clock), lake.rows(), lake.rewritten(process())
        too_old = Moment(at.monotonic_s - 2 * COMMIT_DEADLINE_S, at.wall_ms)
        with pytest.raises(Fenced):
            lake.replace(made, replace(process(), since=too_old))
        assert (lake.spent_by(process()), lake.rows()) == (None, rows)

    @pytest.mark.req("E6")
    def test_nothing_is_discarded_before_the_token_is_spent(self, lake: FormatHarness) -> None:
        made = lake.rewritten(process())
        with pytest.raises(Refused):
            lake.discard(process())
        assert lake.staged(process()) == len(made.paths)

    @pytest.mark.req("E6")
    def test_what_was_aborted_is_discarded_whole_and_nothing_else(
        self, lake: FormatHarness
    ) -> None:
        rows = lake.rows()
        made, other = lake.rewritten(process(number=1)), lake.rewritten(process(number=2))
        lake.give_up(process(number=1))
        assert lake.discard(process(number=1)) == len(made.paths)
        assert lake.discard(process(number=1)) == 0
        assert (lake.staged(process(1)), lake.staged(process(2))) == (0, len(other.paths))
        assert lake.rows() == rows

    @pytest.mark.req("E6")
    def test_what_a_lost_execution_staged_is_unclaimed_and_discarded_after_the_commit(
        self, lake: FormatHarness
    ) -> None:
        rows, lost = lake.rows(), lake.rewritten(process(execution="t1.1"))
        made = lake.rewritten(process(execution="t1.2"))
        lake.replace(made)

        def unclaimed() -> int:
            return len(lake.format.unclaimed(lake.session, lake.ref, made.process, made.paths))

        assert unclaimed() == len(lost.paths)
        assert lake.discard(made.process) == len(lost.paths)
        assert (unclaimed(), lake.staged(made.process)) == (0, len(made.paths))
        assert lake.rows() == rows

    def test_a_bin_that_conflicts_is_named_and_the_others_are_replaced(
        self, lake: FormatHarness
    ) -> None:
        made = lake.rewritten(process())
        lake.remove_file(made.inputs[0].paths[0])
        rows = lake.rows()
        done = lake.replace(made)
        conflicting = made.inputs[0].number
        assert (done.groups, set(done.conflicts)) == (ALL - {conflicting}, {conflicting})
        assert lake.rows() == rows

    def test_when_every_bin_conflicts_the_token_is_left_unspent(self, lake: FormatHarness) -> None:
        made = lake.rewritten(process())
        for inputs in made.inputs:
            lake.remove_file(inputs.paths[0])
        done = lake.replace(made)
        assert (done.groups, done.snapshot, set(done.conflicts)) == (frozenset(), None, ALL)
        assert lake.spent_by(process()) is None

    def test_rows_that_came_meanwhile_stay(self, lake: FormatHarness) -> None:
        made = lake.rewritten(process())
        lake.append()
        rows = lake.rows()
        assert lake.replace(made).groups == ALL
        assert lake.rows() == rows

    def test_a_table_made_anew_under_the_same_name_is_another(self, lake: FormatHarness) -> None:
        planned, before = lake.planned(), lake.probe()
        made = lake.rewrite(planned, process())
        lake.make_anew()
        rows = lake.rows()
        assert lake.probe().uuid != before.uuid
        with pytest.raises(Refused):
            lake.rewrite(planned, process(execution="t1.2"))
        with pytest.raises(Refused):
            lake.replace(made)
        assert (lake.spent_by(process()), lake.rows()) == (None, rows)
