"""Where rows go: a model of a sink's target that holds rows and tokens as the real ones do.

Stage is durable and invisible; a commit spends the token, or is refused; an abort spends it
without rows; what was staged goes only then. It takes the steps of the file sink, which are those
of the others and one more. Once it is forgotten, it knows nothing of the tokens that were spent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import JsonValue

from headrace.connectors.connector import Committed, Sink, Source, Staged
from headrace.errors import Unavailable
from headrace.exactly_once.operations import check_given_up, check_spender
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import Deadline, EpochAt, now
from headrace.protocol.messages import Slice
from headrace.seams import seam
from tests.simulation.faults import AT_TARGET, Faults
from tests.simulation.scenario import COMMIT_DEADLINE_S, Scenario
from tests.simulation.world import the_world

T = TypeVar("T")
Row = tuple[str, int, str]  # source, number, what it says (of a source that changes: who read it)
OLD: Row = ("old", 0, "")  # was there before the job
READ_MIN_S = 0.01
Place = tuple[str, int, str]  # incarnation, pipeline, sink


@dataclass(slots=True)
class Table:
    """One sink's target."""

    rows: list[Row] = field(default_factory=lambda: [OLD])
    mark: int = -1
    ends: dict[int, str] = field(default_factory=dict[int, str])  # by epoch: committed or aborted
    stagers: dict[int, str] = field(default_factory=dict[int, str])  # by epoch: whose rows
    staged: dict[tuple[int, str], list[Row]] = field(
        default_factory=dict[tuple[int, str], list[Row]]
    )
    manifests: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    late: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])  # staged after the end
    forgotten: int = -1  # the highest epoch of which the target knows nothing any more

    @property
    def reached(self) -> int:
        return max(self.mark, self.forgotten)


class Target:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.tables: dict[Place, Table] = defaultdict(Table)
        self.commits = 0

    def call(self, name: str, effect: Callable[[], T]) -> T:
        """A call over a wire that may break before the effect, or after it."""
        self._meet(f"target, before {name}")
        result = effect()
        self._meet(f"target, after {name}")
        return result

    def _meet(self, point: str) -> None:
        world = the_world()
        process = world.process
        assert process is not None
        world.sleep(process.random.uniform(0.001, 0.02))
        if self._faults.meet(point, AT_TARGET):
            raise Unavailable("the target does not answer")


class ModelSource(Source):
    """Rows by number. One that `changes` says something else each time it is read (E2)."""

    takes_conditions = False

    def __init__(self, name: str, scenario: Scenario, execution: str) -> None:
        self.bounded = not scenario.streaming
        self.repeatable = not scenario.changes
        self.name, self._scenario, self._execution = name, scenario, execution

    def plan(
        self, session: object, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        first = int(position) if isinstance(position, int) else 0
        rows = self._scenario.length(int(self.name.rsplit("-", 1)[1]))
        most = self._scenario.rows_per_epoch
        if first >= rows:
            return None
        if self._scenario.uneven:
            process = the_world().process
            assert process is not None
            most = process.random.randint(1, 2 * most)
        end = min(first + most, rows)
        last = self.bounded and end == rows
        return Slice(data=[first, end], after=end, rows=end - first, last=last)

    def read(self, session: object, part: Slice) -> Any:
        process = the_world().process
        assert process is not None
        the_world().sleep(process.random.uniform(READ_MIN_S, self._scenario.read_s))
        first, end = cast("list[int]", part.data)
        said = self._execution if self._scenario.changes else ""
        return _Frame([(self.name, n, said) for n in range(first, end)])

    def empty(self, session: object) -> Any:
        return _Frame()


class _Frame(list[Row]):
    """Rows, as far as a pipeline needs a frame."""

    def unionByName(self, other: _Frame) -> _Frame:  # noqa: N802  as Spark names it
        return _Frame([*self, *other])

    def persist(self) -> _Frame:
        return self

    def unpersist(self) -> _Frame:
        return self


class ModelSink(Sink):
    leaves_stage = True

    def __init__(
        self, name: str, target: Target, problem: Callable[[str, str], None], *, opens: bool
    ) -> None:
        self.name, self._target, self._problem, self.opens = name, target, problem, opens

    def read_mark(self, session: object, at: EpochAt) -> Mark | None:
        """No call that could fail: it changes nothing, and would change every known history."""
        table = self._table(at)
        if table.mark < 0:
            return None
        return Mark(table.mark, aborted=table.ends[table.mark] == "aborted")

    def survey(self, session: object, frame: Any, at: EpochAt) -> JsonValue:
        return {"rows": [list(row) for row in self._table(at).rows]}

    def open(self, session: object, handle: Any, at: EpochAt) -> Committed:
        """DROP_DATA: what was there goes, once."""
        table = self._table(at)

        def effect() -> bool:
            if table.mark >= at.epoch:
                return True
            self._check_in_time(table, at)
            table.rows.clear()
            table.mark, table.ends[at.epoch] = at.epoch, "committed"
            return False

        seam("before sink open")
        already = self._target.call("open", effect)
        seam("opening written")
        seam("sink opened")
        return Committed(already, {})

    def _table(self, at: EpochAt) -> Table:
        return self._target.tables[at.incarnation, at.pipeline, self.name]

    def stage(self, session: object, frame: Any, at: EpochAt) -> Staged:
        table = self._table(at)

        def effect() -> None:
            table.staged[at.epoch, at.execution] = list(frame)
            if table.reached >= at.epoch:
                table.late.add((at.epoch, at.execution))

        seam("before stage")
        self._target.call("stage", effect)
        seam("staged")
        return Staged({"epoch": at.epoch, "execution": at.execution}, len(frame))

    def commit(self, session: object, handle: Any, at: EpochAt) -> Committed:
        """As files do it: a manifest spends the token, moves follow that anybody may repeat."""
        table = self._table(at)
        staged = (int(handle["epoch"]), str(handle["execution"]))
        seam("before sink commit")
        already = self._target.call("commit", lambda: self._spend(table, staged, at))
        held = table.stagers.get(at.epoch)
        check_spender(f"sink {self.name}", at, staged=staged[1], held=held)
        seam("manifest written")
        self._target.call("moves", lambda: self._move(table, at.epoch))
        seam("sink committed")
        return Committed(already, {"rows": len(table.rows)})

    def _spend(self, table: Table, staged: tuple[int, str], at: EpochAt) -> bool:
        seam("in sink transaction")
        if table.mark >= at.epoch:
            if table.ends[at.epoch] != "committed":
                raise Unavailable("the token was spent by an abort")
            return True
        self._check_in_time(table, at)
        self._check_order(at)
        if staged not in table.staged:
            self._problem("nothing_deleted_that_may_be_committed", f"{self.name}: {staged}")
            return False
        table.manifests[at.epoch] = staged
        table.stagers[at.epoch] = staged[1]
        table.mark, table.ends[at.epoch] = at.epoch, "committed"
        self._target.commits += 1
        return False

    def _check_in_time(self, table: Table, at: EpochAt) -> None:
        """Refuse whoever may be too late. Nobody else comes after the marks are gone."""
        clock = the_world().process
        assert clock is not None
        if Deadline(clock, at.since or now(clock), COMMIT_DEADLINE_S).passed:
            raise Unavailable("it took too long")
        if at.epoch <= table.forgotten:
            if any(the_world().jumps_ms.values()):  # forgotten earlier, by as much as it jumped
                raise Unavailable("what was staged is gone")
            what = f"{self.name}: epoch {at.epoch} of {at.execution}, and {table.forgotten} was"
            self._problem("forgotten_when_nobody_can_commit", what)

    def _move(self, table: Table, epoch: int) -> None:
        if (staged := table.manifests.pop(epoch, None)) is not None:
            table.rows += table.staged.pop(staged)

    def _check_order(self, at: EpochAt) -> None:
        """An epoch without rows is in no sink; one that is in some sink must be in all."""
        tables = {
            place[2]: table
            for place, table in self._target.tables.items()
            if place[:2] == (at.incarnation, at.pipeline)
        }
        before = [e for table in tables.values() for e in table.ends if e < at.epoch]
        for sink, table in tables.items():
            if table.reached < max(before, default=-1):
                what = f"epoch {at.epoch} at {self.name}, {sink} has {table.mark}"
                self._problem("no_epoch_before_the_one_before_it", what)

    def sweep(self, session: object, handle: Any, at: EpochAt) -> None:
        def delete() -> None:
            # Without a handle nobody knows that the token is spent, and every target asks first.
            if handle is not None or self._table(at).mark >= at.epoch:
                self._delete(at)  # finishes the moves, too

        seam("before sweep")
        self._target.call("sweep", delete)

    def abort(self, session: object, at: EpochAt) -> None:
        table = self._table(at)

        def spend() -> None:
            if table.mark < at.epoch:
                self._check_in_time(table, at)
                table.mark, table.ends[at.epoch] = at.epoch, "aborted"
            # As a target that only has the mark: whatever is below it and not aborted has rows.
            holds_rows = table.ends.get(at.epoch) != "aborted"
            check_given_up(f"table {self.name}", at, holds_rows=holds_rows)

        seam("before abort")
        self._target.call("abort", spend)
        seam("abort spent")
        self._target.call("delete", lambda: self._delete(at))

    def _delete(self, at: EpochAt) -> None:
        table = self._table(at)
        self._move(table, at.epoch)
        for staged in [key for key in table.staged if key[0] == at.epoch]:
            if table.reached < at.epoch:
                what = f"{self.name}: epoch {at.epoch} staged by {staged[1]}"
                self._problem("nothing_deleted_that_may_be_committed", what)
            del table.staged[staged]
            table.late.discard(staged)

    def forget(self, session: object, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """What is left of each epoch goes, then the marks; above `at.epoch` nothing is touched."""
        table = self._table(at)

        def sweep() -> None:
            for epoch in [e for e in table.manifests if e <= at.epoch]:
                self._move(table, epoch)
            for staged in [key for key in table.staged if key[0] <= at.epoch]:
                del table.staged[staged]
                table.late.discard(staged)

        def remove() -> None:
            table.forgotten = max(table.forgotten, at.epoch)
            if table.mark <= at.epoch:
                table.mark = -1

        if owners is not None and at.incarnation not in owners:
            self._problem("only_owned_is_forgotten", f"{at.incarnation}: {sorted(owners)}")
        seam("marks read")
        seam("before leftovers are deleted")
        self._target.call("leftovers", sweep)
        seam("before marks are forgotten")
        self._target.call("forget", remove)
