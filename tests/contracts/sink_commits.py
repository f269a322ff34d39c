"""The contract of sinks: a token is spent once (E1), and what nobody knows is asked (E3)."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from headrace.clock import SystemClock
from headrace.errors import Fenced, StoreOlderThanTarget, TokenSpent, Unavailable
from headrace.model.jobs.epoch import Moment
from tests.contracts.sink_harness import Go, SinkCase, SinkHarness, at, rows

RACERS = 3
JOIN_MAX_S = 240
AGES_S = 3_601.0  # longer than the deadline of a commit


class CommitContract(SinkCase):
    @pytest.mark.req("E1")
    def test_nothing_is_seen_before_the_commit_and_all_of_it_after(
        self, harness: SinkHarness
    ) -> None:
        to = harness.sink()
        staged = to.stage(harness.session, harness.frame(10), at())
        assert staged.rows == 3
        assert (harness.ids(), len(harness.staged()) > 0) == ([], True)

        assert not to.commit(harness.session, staged.handle, at()).already
        to.sweep(harness.session, staged.handle, at())

        assert (harness.ids(), harness.staged()) == (rows(10), [])

    @pytest.mark.req("E1", "E2")
    def test_a_second_commit_is_answered_already_also_after_the_sweep(
        self, harness: SinkHarness
    ) -> None:
        """Whoever comes next commits from the same handle: after a crash it is the only way."""
        handle = self.commit(harness, at())
        assert harness.sink().commit(harness.session, handle, at()).already
        harness.sink().sweep(harness.session, handle, at())

        assert harness.sink().commit(harness.session, handle, at(execution="t1.2")).already
        assert harness.ids() == rows(0)

    @pytest.mark.req("E1")
    def test_a_spent_token_is_answered_by_looking_alone(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing at the target is touched, not even tried: it may be closed to writers."""
        handle = self.commit(harness, at(1))
        harness.sink().abort(harness.session, at(2))

        def closed(_: Go) -> str | None:
            raise AssertionError("a token that is spent was tried again")

        self.instead(harness, monkeypatch, closed)

        assert harness.sink().commit(harness.session, handle, at(1, "t1.2")).already
        harness.sink().abort(harness.session, at(2, "t1.2"))
        with pytest.raises(StoreOlderThanTarget):
            harness.sink().abort(harness.session, at(1, "t1.2"))

    @pytest.mark.req("E1", "E6")
    def test_a_commit_after_an_abort_is_refused_also_after_later_epochs(
        self, harness: SinkHarness
    ) -> None:
        self.commit(harness, at(1))
        handle = self.stage(harness, at(2), 20)
        harness.sink().abort(harness.session, at(2, "t1.2"))
        with pytest.raises(TokenSpent):
            harness.sink().commit(harness.session, handle, at(2))
        self.commit(harness, at(3, "t1.2"), 30)

        with pytest.raises(TokenSpent):
            harness.sink().commit(harness.session, handle, at(2))
        assert harness.ids() == rows(0, 30)

    @pytest.mark.req("E1", "E7")
    def test_rows_of_another_execution_are_not_taken_for_those_that_were_prepared(
        self, harness: SinkHarness
    ) -> None:
        """A worker of the time before the store was restored wakes, and commits its epoch 2."""
        self.commit(harness, at(1))
        before = self.stage(harness, at(2, "before.1"), 20)
        now = self.stage(harness, at(2, "now.1"), 40)
        harness.sink().commit(harness.session, before, at(2, "before.1"))

        with pytest.raises(StoreOlderThanTarget, match=r"holds epoch 2 .* execution before\.1"):
            harness.sink().commit(harness.session, now, at(2, "now.1"))

        assert harness.ids() == rows(0, 20)
        assert harness.sink().commit(harness.session, before, at(2, "now.2")).already

    @pytest.mark.req("E1")
    def test_a_zombie_that_looked_before_the_owner_committed_is_refused_by_the_target(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was told "unspent", and was stopped right before the one step that counts."""
        self.commit(harness, at(1))
        handle = self.stage(harness, at(2), 20)

        def owner() -> None:
            assert not harness.sink().commit(harness.session, handle, at(2, "t1.2")).already

        self.instead(harness, monkeypatch, self.first_only(owner))

        assert harness.sink().commit(harness.session, handle, at(2)).already
        assert harness.ids() == rows(0, 20)

    @pytest.mark.req("E1", "E6")
    def test_a_zombie_that_looked_before_the_abort_is_refused_by_the_target(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.commit(harness, at(1))
        handle = self.stage(harness, at(2), 20)

        def abort() -> None:
            harness.sink().abort(harness.session, at(2, "t1.2"))

        self.instead(harness, monkeypatch, self.first_only(abort))

        with pytest.raises(TokenSpent):
            harness.sink().commit(harness.session, handle, at(2))
        assert harness.ids() == rows(0)

    @pytest.mark.req("E1")
    def test_of_committers_that_race_one_commits_and_the_others_are_refused(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All of them have seen that the token is unspent before any of them spends it."""
        self.commit(harness, at(1))
        handles = [self.stage(harness, at(2, f"t1.{n}"), 20) for n in range(RACERS)]
        gate = threading.Barrier(RACERS)
        passed: set[int] = set()
        won: list[int] = []
        refused: list[int] = []

        def gated(go: Go) -> str | None:
            if threading.get_ident() not in passed:
                passed.add(threading.get_ident())
                gate.wait(timeout=JOIN_MAX_S)
            return go()

        def race(number: int) -> None:
            here = at(2, f"t1.{number}")
            try:
                outcome = harness.sink().commit(harness.session, handles[number], here)
                (refused if outcome.already else won).append(number)
            except StoreOlderThanTarget:  # the rows that are there are not its own
                refused.append(number)

        self.instead(harness, monkeypatch, gated)
        threads = [threading.Thread(target=race, args=(n,), daemon=True) for n in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=JOIN_MAX_S)

        assert (len(won), len(refused)) == (1, RACERS - 1)
        assert harness.ids() == rows(0, 20)

    @pytest.mark.req("E1")
    def test_who_began_too_long_ago_commits_nothing_but_is_told_what_is_there(
        self, harness: SinkHarness
    ) -> None:
        clock = SystemClock()
        asleep = Moment(clock.monotonic_s() - AGES_S, clock.wall_ms() - round(AGES_S * 1000))
        late, handle = replace(at(2), since=asleep), self.stage(harness, at(2), 20)
        if not harness.has_deadline:
            pytest.skip("its commit needs no deadline")
        with pytest.raises(Fenced, match="too old to commit"):
            harness.sink().commit(harness.session, handle, late)
        assert (harness.ids(), harness.sink().read_mark(harness.session, at())) == ([], None)

        harness.sink().commit(harness.session, handle, at(2, "t1.2"))
        assert harness.sink().commit(harness.session, handle, late).already

    @pytest.mark.req("E3")
    @pytest.mark.parametrize("raises", [False, True], ids=["unconfirmed", "failed"])
    def test_a_commit_whose_answer_was_lost_is_found_at_the_target(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch, *, raises: bool
    ) -> None:
        handle = self.stage(harness, at())
        tries: list[int] = []

        def lost(go: Go) -> str | None:
            tries.append(len(tries))
            go()
            if raises:
                raise Unavailable("no answer came")
            return "no answer came"

        self.instead(harness, monkeypatch, lost)

        assert not harness.sink().commit(harness.session, handle, at()).already, "it was our own"
        assert (harness.ids(), len(tries)) == (rows(0), 1)

    @pytest.mark.req("E3")
    def test_a_target_that_says_done_and_keeps_nothing_does_not_complete_an_epoch(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has happened, in catalogs of other systems."""
        self.commit(harness, at(1))
        handle = self.stage(harness, at(2), 20)
        before = harness.staged()
        with monkeypatch.context() as patch:
            self.instead(harness, patch, lambda _: None)
            with pytest.raises(Unavailable, match=r"showed no commit .* nothing was deleted"):
                harness.sink().commit(harness.session, handle, at(2))

        assert (harness.ids(), harness.staged()) == (rows(0), before)
        assert not harness.sink().commit(harness.session, handle, at(2)).already
        assert harness.ids() == rows(0, 20)
