"""Jobs that end, each with targets and numbers of its own, and what is looked for afterwards."""

from __future__ import annotations

from headrace.client.views import JobView
from tests.crash.cluster import Cluster, until
from tests.crash.database import Database
from tests.crash.jobs import JOB_MAX_S, LOOK_S, csv, ids_in, job_text, numbers, paced
from tests.crash.stand import SPARK_START_MAX_S
from tests.crash.succession import Succession
from tests.crash.traces import Targets, ended_runs, rows_left

ROWS = 20
SPLITS = 12
EPOCH_MS = 500
APART = 1000  # between the first numbers of two jobs
AGAIN = 500  # between those of a job and of the next one under its id
LOOK_AT_STORE_S = 0.3
GONE_MAX_S = 600.0  # with a try that failed, the pause after it, and a worker that starts


class Life:
    """A job, and what there is to be seen of it."""

    def __init__(
        self, succession: Succession, targets: Targets, *, first: int, epochs: int
    ) -> None:
        self.id, self.first, self.targets = targets.name, first, targets
        self._succession, self._epochs = succession, epochs
        self.runs, self.epoch = 1, 0

    def text(self, first: int) -> str:
        pace = [paced(self._epochs, EPOCH_MS)] if self._epochs > 1 else []
        source = numbers("made", ROWS * self._epochs, *pace, first=first)
        sinks = self.targets.sinks("made")
        return job_text([source], sinks, f"checkpoint.interval = {EPOCH_MS}")

    def numbers(self, first: int) -> list[int]:
        return list(range(first, first + ROWS * self._epochs))

    def submit(self) -> None:
        self._succession.submit(self.text(self.first), key=self.id, job_id=self.id)

    def submit_again(self) -> None:
        """Another job under the id of this one, with other rows for the same targets."""
        text = self.text(self.first + AGAIN)
        assert self._succession.submit(text, key=f"{self.id}-again", job_id=self.id) == self.id

    def save(self, *, above: int) -> None:
        """Stop it with a savepoint, once it is so far."""

        def far() -> bool:
            view = self._succession.job(self.id)
            return view.status == "RUNNING" and view.pipelines[0].epoch > above

        limit_s = SPARK_START_MAX_S + JOB_MAX_S
        until(far, limit_s=limit_s, what=f"an epoch above {above}", every_s=LOOK_S)
        with self._succession.client() as client:
            client.savepoint_job(self.id)
        self.epoch = self._succession.await_end(self.id, "SAVEPOINT_DONE").pipelines[0].epoch

    def restore(self, key: str) -> None:
        text = self.text(self.first)
        assert self._succession.submit(text, key=key, restore=self.id) == self.id
        self.runs += 1


class Lives:
    def __init__(self, made: Cluster, database: Database) -> None:
        self.made, self._database = made, database
        self.succession = Succession(made)
        self._all: list[Life] = []

    def next(self, *, epochs: int = 1) -> Life:
        self.succession.await_complete()
        number = len(self._all) + 1
        targets = Targets(self.made, self._database, f"life{number}")
        begun = Life(self.succession, targets, first=1 + APART * number, epochs=epochs)
        self._all.append(begun)
        return begun

    def assert_ended(self, life: Life) -> JobView:
        """And is not said to run: not even by who has only just taken over."""
        view = self.succession.await_end(life.id)
        assert life.id not in self.succession.running()
        return view

    def assert_nothing_left(self) -> None:
        """Each was deleted once, and its rows, which came once, are all that its targets have."""
        self._await_gone()
        self.succession.await_complete()
        for life in self._all:
            expected = life.numbers(life.first)
            assert life.targets.ids() == (expected, expected)
            assert life.targets.traces() == []
            assert [run for run, _ in self._ended(life)] == list(range(1, life.runs + 1))
            assert self.succession.times_said("job cleaned", life.id) == life.runs
            view = self.succession.job(life.id)
            assert (view.status, view.cleaned, view.cleanup) == ("FINISHED", True, None)
        assert self.succession.running() == []
        self._assert_metrics_agree()

    def _await_gone(self) -> None:
        left: dict[str, int] = {}

        def gone() -> bool:
            left.clear()
            left.update(rows_left(self.made.store_url))
            return not left

        try:
            until(gone, limit_s=GONE_MAX_S, what="all jobs are cleaned up", every_s=LOOK_AT_STORE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; left: {left}") from error

    def _ended(self, life: Life) -> list[tuple[int, str]]:
        return list(ended_runs(self.made.store_url, life.id))

    def _assert_metrics_agree(self) -> None:
        told = self.succession.metrics()
        # Not of tasks: those of tables that are optimized meanwhile are counted as well.
        busy = ("headrace_jobs{", "headrace_cleanups{")
        assert {name: n for name, n in told.items() if n and name.startswith(busy)} == {}
        runs = sum(life.runs for life in self._all)
        ended = sum(n for name, n in told.items() if name.startswith("headrace_history{"))
        assert ended == runs

    def assert_ids_are_free(self) -> None:
        """Another job under the id of each finds the rows of the first, and adds its own."""
        for life in self._all:
            life.submit_again()
        in_lake: list[int] = []
        for life in self._all:
            self.succession.await_end(life.id)
            expected = life.numbers(life.first) + life.numbers(life.first + AGAIN)
            in_lake += expected
            assert life.targets.ids() == (expected, expected)
            assert self._ended(life) == [(1, "FINISHED"), (1, "FINISHED")]
        assert self._ids_in_the_lake() == in_lake

    def _ids_in_the_lake(self) -> list[int]:
        """A job of its own reads all tables of it."""
        copy = self.made.folder / "copy"
        names = [life.id for life in self._all]
        sources = [life.targets.source_in_lake(life.id) for life in self._all]
        self.succession.submit(job_text(sources, [csv(names, copy)]), key="copy", job_id="copy")
        self.succession.await_end("copy")
        return ids_in(copy)
