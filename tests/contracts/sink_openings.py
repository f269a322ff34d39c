"""The contract of sinks: save modes are epoch 0, done once, and marks tell a store that is too old
(E7)."""

from __future__ import annotations

import pytest

from headrace.errors import TokenSpent
from headrace.exactly_once.target import Mark
from tests.contracts.sink_harness import INCARNATION, OTHER, Go, SinkCase, SinkHarness, at, rows


class OpeningContract(SinkCase):
    @pytest.mark.req("E1")
    def test_an_opening_drops_once_and_a_zombie_of_it_drops_nothing(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._put_there(harness)
        to = harness.sink(drops=True)
        handle = to.survey(harness.session, harness.frame(0, 0), at(0))
        assert harness.ids() == rows(70), "a survey changes nothing"

        def owner() -> None:
            assert not to.open(harness.session, handle, at(0, "t1.2")).already
            assert harness.ids() == []
            self.commit(harness, at(1, "t1.2"))

        with monkeypatch.context() as patch:
            self.instead(harness, patch, self.first_only(owner))
            assert to.open(harness.session, handle, at(0)).already
        assert harness.ids() == rows(0)

        later = harness.sink(drops=True).survey(harness.session, harness.frame(0, 0), at(0))
        assert to.open(harness.session, later, at(0, "t1.3")).already
        assert harness.ids() == rows(0)

    @pytest.mark.req("E3")
    def test_an_opening_whose_answer_was_lost_is_found_at_the_target(
        self, harness: SinkHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._put_there(harness)
        to = harness.sink(drops=True)
        handle = to.survey(harness.session, harness.frame(0, 0), at(0))

        def lost(go: Go) -> str | None:
            go()
            return "no answer came"

        self.instead(harness, monkeypatch, lost)

        assert not to.open(harness.session, handle, at(0)).already, "it was our own"
        assert harness.ids() == []

    @pytest.mark.req("E6")
    def test_an_abort_of_epoch_0_spends_its_token_and_keeps_every_row(
        self, harness: SinkHarness
    ) -> None:
        self._put_there(harness)
        to = harness.sink(drops=True)
        handle = to.survey(harness.session, harness.frame(0, 0), at(0))
        to.abort(harness.session, at(0, "t1.2"))

        with pytest.raises(TokenSpent):
            to.open(harness.session, handle, at(0))
        to.sweep(harness.session, None, at(0))
        assert harness.ids() == rows(70)

    def _put_there(self, harness: SinkHarness) -> None:
        """Rows of another job."""
        other = at(1, "t9.1", OTHER)
        handle = self.stage(harness, other, 70)
        harness.sink().commit(harness.session, handle, other)
        harness.sink().sweep(harness.session, handle, other)


class MarkContract(SinkCase):
    @pytest.mark.req("E7")
    def test_a_target_says_which_epoch_is_the_highest_that_is_spent_and_by_what(
        self, harness: SinkHarness
    ) -> None:
        def mark(epoch: int = 0, incarnation: str = INCARNATION) -> Mark | None:
            here = at(epoch, incarnation=incarnation)
            return harness.sink().read_mark(harness.session, here)

        assert mark() is None, "there is no target yet"
        self.commit(harness, at(2), 20)
        assert mark() == Mark(2, aborted=False)
        self.commit(harness, at(10), 100)  # as a text it would be below 2
        assert mark(epoch=99) == Mark(10, aborted=False)
        harness.sink().abort(harness.session, at(11))
        assert (mark(), mark(incarnation=OTHER)) == (Mark(11, aborted=True), None)
