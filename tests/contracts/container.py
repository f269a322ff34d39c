"""What every kind of container promises: classes of tests, and the harness that they need.

A kind proves itself with one `ContainerHarness` and a class that gives it:

    class TestMyKind(LifeContract, WithdrawalContract, EndContract):
        @pytest.fixture
        def harness(self, tmp_path) -> Iterator[ContainerHarness]:
            with MyHarness(tmp_path) as made:
                yield made

`StartContract` is for all of them, `LifeContract` for those that start and stop something,
`WithdrawalContract` for those where a launch that was stopped can't begin any more, `EndContract`
for those whose workers may end by themselves, `HealingContract` for those that start them again,
and `AwayContract` for those that are asked over a wire. Each call is made through a container of
its own, as by a coordinator that was started meanwhile.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from headrace.containers.container import (
    Launch,
    LaunchState,
    Withdrawn,
    WorkerContainer,
)
from headrace.errors import BadSetting, HeadraceError, Unavailable
from tests.cli.machine import wait_until
from tests.containers.launches import TOKEN, launch_of

RACERS = 3
GRACE_S = 30.0
JOIN_MAX_S = 240


class ContainerHarness(ABC):
    """A place where nothing runs yet, containers that reach it, and a stranger's look at it."""

    @abstractmethod
    def container(self) -> WorkerContainer:
        """A new container, as another coordinator would make it; it has the token TOKEN."""

    @abstractmethod
    def readable(self, launch: Launch) -> str:
        """Where the launch runs, or in what a start gave: all that everybody can read of it."""

    def running(self, launch: Launch) -> Sequence[object]:
        """Each process of the launch that runs, those that its worker started included."""
        raise NotImplementedError

    def begun(self, launch: Launch) -> int:
        """How many workers ever began to work for the launch."""
        raise NotImplementedError

    def coming_up(self, launch: Launch) -> int:
        """How many processes were started for the launch that neither work nor have ended yet."""
        return 0

    def start_and_die(self, launch: Launch) -> None:
        """A coordinator starts the launch, and dies before it has an answer."""
        raise NotImplementedError

    def end_worker(self, launch: Launch) -> None:
        """The worker of the launch ends by itself, after its last line in the log, `works`."""
        raise NotImplementedError

    def go_away(self) -> None:
        """Whoever could be asked about launches no longer answers."""
        raise NotImplementedError

    def close(self) -> None:
        """End whatever is left."""
        raise NotImplementedError


class ContainerCase:
    """Of which the parts of the contract are made; a subclass gives the harness."""

    @pytest.fixture
    def harness(self) -> Iterator[ContainerHarness]:
        raise NotImplementedError

    def start_working(self, harness: ContainerHarness, launch: Launch) -> Sequence[object]:
        """Start it, wait until it works, and say what runs."""
        harness.container().start(launch)
        wait_until(lambda: harness.begun(launch) == 1, "the worker works")
        return harness.running(launch)

    def state(self, harness: ContainerHarness, launch: Launch) -> LaunchState:
        return harness.container().status(launch).state


class StartContract(ContainerCase):
    @pytest.mark.req("R8")
    def test_started_twice_it_is_found_and_the_same_is_told(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        first = harness.container().start(launch).properties
        assert all(isinstance(each, str) for pair in first.items() for each in pair)

        # As a leader does that has recorded the first answer with the resource.
        recorded = replace(launch, properties={**launch.properties, **first})
        for again in (launch, recorded):
            found = harness.container().start(again).properties
            assert first.items() <= found.items()

    def test_the_token_stands_nowhere_where_others_can_read_it(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        harness.container().start(launch)
        assert launch.resource in harness.readable(launch)
        assert TOKEN not in harness.readable(launch)

    def test_a_property_that_it_does_not_know_is_refused_by_name(
        self, harness: ContainerHarness
    ) -> None:
        container = harness.container()
        container.check("g1", {}, memory_mb=0)
        with pytest.raises(BadSetting, match=r"group 'g1'.*unknown property 'nosuch'"):
            container.check("g1", {"nosuch": "x"}, memory_mb=0)
        assert container.name


class LifeContract(StartContract):
    """It starts, stops and knows."""

    def test_nothing_is_known_of_a_launch_that_never_was(self, harness: ContainerHarness) -> None:
        assert self.state(harness, launch_of()) is LaunchState.UNKNOWN
        assert list(harness.container().logs(launch_of(), lines=5)) == []

    @pytest.mark.req("R8")
    def test_started_twice_one_worker_runs_and_everybody_knows(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        before = self.start_working(harness, launch)
        assert before

        harness.container().start(launch)

        assert (harness.running(launch), harness.begun(launch)) == (before, 1)
        assert self.state(harness, launch) is LaunchState.RUNNING
        assert "works" in "\n".join(harness.container().logs(launch, lines=3))
        assert len(harness.container().logs(launch, lines=1)) == 1

    @pytest.mark.req("R8")
    def test_of_starters_that_race_one_worker_is_left(self, harness: ContainerHarness) -> None:
        launch, answers, gate = launch_of(), list[str](), threading.Barrier(RACERS)

        def start() -> None:
            container = harness.container()
            gate.wait(timeout=JOIN_MAX_S)
            answers.append(str(container.start(launch).properties))

        racers = [threading.Thread(target=start, daemon=True) for _ in range(RACERS)]
        for each in racers:
            each.start()
        for each in racers:
            each.join(timeout=JOIN_MAX_S)

        assert len(answers) == RACERS, "each of them has an answer"
        self.assert_one_works(harness, launch)

    @pytest.mark.req("R8")
    def test_a_start_whose_answer_nobody_heard_is_found_by_the_next_one(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        harness.start_and_die(launch)

        harness.container().start(launch)

        self.assert_one_works(harness, launch)

    def assert_one_works(self, harness: ContainerHarness, launch: Launch) -> None:
        wait_until(lambda: harness.begun(launch) > 0, "one of them works")
        wait_until(lambda: harness.coming_up(launch) == 0, "the others have given way")
        assert harness.begun(launch) == 1
        assert self.state(harness, launch) is LaunchState.RUNNING

    def test_a_launch_of_another_number_or_resource_is_another_worker(
        self, harness: ContainerHarness
    ) -> None:
        launch, later, other = launch_of(), launch_of(2), launch_of(resource="r2")
        for each in (launch, later, other):
            self.start_working(harness, each)

        harness.container().stop(launch, grace_s=GRACE_S)

        assert not harness.running(launch)
        for each in (later, other):
            assert self.state(harness, each) is LaunchState.RUNNING
            assert harness.running(each)

    def test_stopped_all_of_it_ends_and_stopping_again_is_no_error(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        assert self.start_working(harness, launch)

        harness.container().stop(launch, grace_s=GRACE_S)

        wait_until(lambda: not harness.running(launch), "nothing of it runs")
        assert self.state(harness, launch) is not LaunchState.RUNNING
        harness.container().stop(launch, grace_s=GRACE_S)

    def test_a_launch_that_never_was_is_stopped_without_an_error(
        self, harness: ContainerHarness
    ) -> None:
        harness.container().stop(launch_of(), grace_s=GRACE_S)
        harness.container().stop(launch_of(), grace_s=GRACE_S)
        assert self.state(harness, launch_of()) is not LaunchState.RUNNING


class WithdrawalContract(ContainerCase):
    """A stop that overtakes a start."""

    def test_stopped_before_it_was_started_it_never_starts(self, harness: ContainerHarness) -> None:
        launch = launch_of()
        harness.container().stop(launch, grace_s=GRACE_S)

        for _ in range(2):
            with pytest.raises(Withdrawn, match=r"launch 1 of resource 'r1'"):
                harness.container().start(launch)

        assert (harness.running(launch), harness.begun(launch)) == ([], 0)
        assert self.state(harness, launch) is LaunchState.ENDED
        assert self.start_working(harness, launch_of(2)), "the next number can be started"

    def test_stopped_after_its_starter_died_it_ends_or_never_begins(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        harness.start_and_die(launch)

        harness.container().stop(launch, grace_s=GRACE_S)

        wait_until(lambda: not harness.running(launch), "nothing of it runs")
        assert self.state(harness, launch) is LaunchState.ENDED


class EndContract(ContainerCase):
    """A worker that ends by itself is ours to follow by another launch."""

    def test_its_end_is_known_with_its_last_words_and_it_is_not_started_again(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        self.start_working(harness, launch)

        harness.end_worker(launch)

        wait_until(lambda: self.state(harness, launch) is LaunchState.ENDED, "its end is known")
        assert "works" in harness.container().status(launch).said
        wait_until(lambda: not harness.running(launch), "what it started has ended, too")
        harness.container().start(launch)
        assert (harness.running(launch), harness.begun(launch)) == ([], 1)
        assert self.start_working(harness, launch_of(2)), "the next number can be started"


class HealingContract(ContainerCase):
    """A place that starts a worker again by itself, and says so (R6)."""

    @pytest.mark.req("R6")
    def test_a_worker_that_ended_is_left_to_the_place_and_counts_as_running(
        self, harness: ContainerHarness
    ) -> None:
        launch = launch_of()
        self.start_working(harness, launch)

        harness.end_worker(launch)

        assert not harness.container().supports.restart
        assert self.state(harness, launch) is LaunchState.RUNNING


class AwayContract(ContainerCase):
    """Where somebody has to be asked, who may give no answer."""

    def test_no_answer_is_an_error_and_no_status(self, harness: ContainerHarness) -> None:
        """Only what is known is kept."""
        launch, container = launch_of(), harness.container()
        self.start_working(harness, launch)
        harness.go_away()

        with pytest.raises(Unavailable):
            container.status(launch)
        for ask in (
            lambda: container.start(launch),
            lambda: container.stop(launch, grace_s=GRACE_S),
            lambda: container.logs(launch, lines=1),
        ):
            with pytest.raises(HeadraceError):
                ask()
