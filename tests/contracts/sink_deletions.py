"""The contract of sinks: nothing goes before its token is spent (E6), and an ended job leaves its
rows and nothing else (C2, C5)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace import seams
from headrace.errors import Refused, StoreOlderThanTarget, Unavailable
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import STRAY_GRACE_S
from tests.contracts.sink_harness import OTHER, Crash, Go, SinkCase, SinkHarness, at, die, rows


class DeletionContract(SinkCase):
    @pytest.mark.req("E6")
    def test_nothing_is_deleted_when_the_token_could_not_be_spent(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.commit(harness, at(1))
        handle = self.stage(harness, at(2), 20)
        before = harness.staged()

        def dies(_: Go) -> str | None:
            raise Crash

        with monkeypatch.context() as patch:
            self.instead(harness, patch, dies)
            with pytest.raises(Crash):
                harness.sink().abort(harness.session, at(2, "t1.2"))

        assert harness.staged() == before
        assert not harness.sink().commit(harness.session, handle, at(2)).already
        assert harness.ids() == rows(0, 20)

    @pytest.mark.req("E6")
    def test_an_abort_spends_the_token_then_deletes_and_can_be_said_again(
        self, harness: SinkHarness
    ) -> None:
        self.commit(harness, at(1))
        self.stage(harness, at(2), 20)
        before = harness.staged()

        seams.arm("abort spent", die)
        with pytest.raises(Crash):
            harness.sink().abort(harness.session, at(2, "t1.2"))
        seams.disarm_all()
        assert harness.staged() == before
        mark = harness.sink().read_mark(harness.session, at())
        assert mark == Mark(2, aborted=True)

        harness.sink().sweep(harness.session, None, at(1))
        harness.sink().abort(harness.session, at(2, "t1.3"))
        assert (harness.ids(), harness.staged()) == (rows(0), [])

    @pytest.mark.req("E6", "E7")
    def test_an_abort_that_comes_after_the_data_changes_nothing(self, harness: SinkHarness) -> None:
        self.stage(harness, at(1, "t1.0"), 10)
        handle = self.commit(harness, at(1))
        before = harness.staged()
        with pytest.raises(StoreOlderThanTarget, match="holds epoch 1 with rows"):
            harness.sink().abort(harness.session, at(1, "t1.2"))

        assert (harness.ids(), harness.staged()) == (rows(0), before)
        assert harness.sink().commit(harness.session, handle, at(1)).already

    @pytest.mark.req("E6")
    def test_a_sweep_deletes_what_the_dead_staged_for_its_epoch_and_no_other(
        self, harness: SinkHarness
    ) -> None:
        self.commit(harness, at(1))
        harness.sink().sweep(harness.session, None, at(1))
        assert harness.staged() == []
        tenth = self.stage(harness, at(20), 200)  # its name begins like that of epoch 2
        others = harness.staged()
        self.stage(harness, at(2, "t1.0"), 10)
        handle = self.stage(harness, at(2), 20)
        before = harness.staged()
        with pytest.raises(Refused, match="not spent"):
            harness.sink().sweep(harness.session, handle, at(2))
        assert harness.staged() == before

        harness.sink().commit(harness.session, handle, at(2))
        harness.sink().sweep(harness.session, None, at(2, "t1.2"))

        assert (harness.ids(), harness.staged()) == (rows(0, 20), others)
        assert not harness.sink().commit(harness.session, tenth, at(20)).already

    def test_there_is_nothing_to_sweep_where_nothing_was_staged(self, harness: SinkHarness) -> None:
        harness.sink().sweep(harness.session, None, at(7))
        assert harness.ids() == []

    def test_seams_stand_on_both_sides_of_each_durable_step(self, harness: SinkHarness) -> None:
        names = ("before stage", "staged", "before sink commit", "sink committed")
        names += ("before sweep", "before abort", "abort spent")
        seen: list[str] = []
        for name in names:
            seams.arm(name, lambda name=name: seen.append(name))
        handle = self.commit(harness, at(1))
        harness.sink().sweep(harness.session, handle, at(1))
        harness.sink().abort(harness.session, at(2))

        assert seen == list(names)


class ForgettingContract(SinkCase):
    @pytest.mark.req("C2", "E6")
    def test_rows_stay_and_all_that_was_staged_or_marked_goes(self, harness: SinkHarness) -> None:
        zombies = self.stage(harness, at(1, "t1.0"), 10)
        self.commit(harness, at(1))
        harness.sink().abort(harness.session, at(2))
        self.stage(harness, at(2, "t1.0"), 20)  # it woke after the abort
        self.commit(harness, at(3), 30)

        for execution in ("f.1", "f.2"):
            harness.sink().forget(harness.session, at(3, execution), owners=None)
            assert (harness.ids(), harness.staged()) == (rows(0, 30), [])
            assert harness.sink().read_mark(harness.session, at()) is None

        with pytest.raises((Refused, Unavailable)):
            harness.sink().commit(harness.session, zombies, at(1, "t1.0"))
        assert harness.ids() == rows(0, 30)

    @pytest.mark.req("C2", "E6")
    def test_what_was_given_up_and_never_aborted_here_is_spent_before_it_is_deleted(
        self, harness: SinkHarness
    ) -> None:
        """A restore gives up what was only planned, in the store alone."""
        self.commit(harness, at(1))
        self.stage(harness, at(2), 20)
        seen: list[tuple[Mark | None, int]] = []

        def look() -> None:
            mark = harness.sink().read_mark(harness.session, at())
            seen.append((mark, len(harness.staged())))

        seams.arm("before leftovers are deleted", look)
        harness.sink().forget(harness.session, at(2, "f.1"), owners=None)

        ((mark, staged),) = seen
        assert (mark, staged > 0) == (Mark(2, aborted=True), True)
        assert (harness.ids(), harness.staged()) == (rows(0), [])

    @pytest.mark.req("C2", "E6")
    def test_marks_are_there_until_all_that_was_staged_is_gone(self, harness: SinkHarness) -> None:
        self.stage(harness, at(1, "t1.0"), 10)
        handle = self.commit(harness, at(1))

        seams.arm("before marks are forgotten", die)
        with pytest.raises(Crash):
            harness.sink().forget(harness.session, at(1, "f.1"), owners=None)
        seams.disarm_all()
        assert harness.staged() == []
        assert harness.sink().commit(harness.session, handle, at(1, "t1.2")).already

        harness.sink().forget(harness.session, at(1, "f.2"), owners=None)
        assert harness.sink().read_mark(harness.session, at()) is None

    @pytest.mark.req("C2")
    def test_epochs_above_are_left_as_they_are(self, harness: SinkHarness) -> None:
        """A restored run of the job commits and stages there."""
        self.commit(harness, at(1))
        self.commit(harness, at(10), 100)
        handle = self.stage(harness, at(11), 110)

        harness.sink().forget(harness.session, at(2, "f.1"), owners=None)

        assert harness.sink().read_mark(harness.session, at()) == Mark(10, aborted=False)
        assert not harness.sink().commit(harness.session, handle, at(11)).already
        assert harness.ids() == rows(0, 100, 110)

    @pytest.mark.req("C2")
    def test_there_is_nothing_to_forget_where_nothing_was_ever_written(
        self, harness: SinkHarness
    ) -> None:
        harness.sink().forget(harness.session, at(3), owners=())
        assert (harness.ids(), harness.staged()) == ([], [])

    @pytest.mark.req("C5")
    def test_what_jobs_that_nobody_knows_left_goes_after_the_grace(
        self, harness: SinkHarness
    ) -> None:
        if not harness.has_strays:
            pytest.skip("what unknown jobs left is not its to find")
        theirs = at(1, "t9.1", OTHER)
        self.commit(harness, theirs)
        self.stage(harness, at(2, "t9.1", OTHER), 20)
        before = harness.staged()
        harness.age(STRAY_GRACE_S - 60)
        self._forget_with(harness, None, (), (OTHER,))
        assert harness.staged() == before, "its owner could still wake"
        harness.age(STRAY_GRACE_S + 60)
        self._forget_with(harness, None, (OTHER,))
        assert harness.staged() == before, "somebody owns it"

        self._forget_with(harness, ())

        assert (harness.ids(), harness.staged()) == (rows(0), [])
        assert harness.sink().read_mark(harness.session, theirs) is None

    def _forget_with(self, harness: SinkHarness, *owners: Sequence[str] | None) -> None:
        for known in owners:
            harness.sink().forget(harness.session, at(0), owners=known)
