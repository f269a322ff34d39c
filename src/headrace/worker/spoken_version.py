"""The version of the protocol that a worker speaks: the newest that it and the leader both know.

It begins with the newest of this program. A leader that does not speak that says what it speaks,
and every answer says so as well, so that the worker follows each change of leader, up and down.
"""

from __future__ import annotations

import logging

from headrace.errors import ProtocolRefused
from headrace.protocol.messages import UNSAID_VERSION
from headrace.protocol.versions import WireVersions

log = logging.getLogger(__name__)


class SpokenVersion:
    """Used by the sync loop's thread alone."""

    def __init__(self, spoken: WireVersions) -> None:
        self._spoken = spoken
        self.now = spoken.newest
        self._introduced = 0  # the newest version in which this worker has registered

    @property
    def is_introduced(self) -> bool:
        """Whether the leader was told about this worker all that can be said in this version."""
        return self.now <= self._introduced

    def note_introduced(self) -> None:
        self._introduced = max(self._introduced, self.now)

    def follow(self, newest: int) -> None:
        """Note an answer of a leader that speaks this version, and maybe the one before."""
        if (version := min(newest, self._spoken.newest)) > self.now:
            self._change(version)

    def agree(self, refusal: ProtocolRefused) -> None:
        """Go on in a version that the leader speaks. Raises ProtocolRefused when there is none."""
        version = self._spoken.common(oldest=refusal.oldest, newest=refusal.newest)
        if version is None or version == self.now:
            message = f"{self._why_none(refusal)}. What it was told: {refusal}"
            newest = refusal.newest
            raise ProtocolRefused(message, oldest=refusal.oldest, newest=newest) from refusal
        self._change(version)

    def _why_none(self, refusal: ProtocolRefused) -> str:
        newest, oldest = self._spoken.newest, self._spoken.oldest
        if refusal.newest >= newest:
            return f"this worker speaks protocol {newest}, which is too old: upgrade it"
        mine = str(newest) if refusal.newest <= UNSAID_VERSION else f"{oldest} and {newest}"
        return (
            f"this worker speaks protocol {mine}, and the coordinator {refusal.newest}: upgrade "
            "the coordinators first, all of them, then the workers"
        )

    def _change(self, version: int) -> None:
        log.info("speaks another version", extra={"protocol": version, "before": self.now})
        self.now = version
