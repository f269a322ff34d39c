"""What went wrong with a container, for people: in the log once, and with the resource."""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.containers.launching import LaunchState, LaunchStatus
from headrace.errors import HeadraceError
from headrace.model.redaction import redacted_to
from headrace.store.resources import Resource

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 2000
NOT_STOPPED = "could not be stopped"  # so begins the error of a resource whose stop broke off


class Telling:
    """Of one term. A question that broke off is asked again every few seconds, and breaks off for
    the same reason: that is said once, and again when it is another one."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}  # by resource: what went wrong last

    def tell(self, told: str, resource: Resource, error: Exception, **more: str) -> None:
        reason = reason_of(error)
        said = f"{told} {resource.launch} {reason}"
        if self._said.get(resource.id) == said:
            return
        self._said[resource.id] = said
        expected = isinstance(error, HeadraceError)
        level, trace = (logging.WARNING, None) if expected else (logging.ERROR, error)
        facts = {"resource": resource.id, "reason": reason, **more}
        log.log(level, told, extra=facts, exc_info=trace)

    def went_well(self, resource: Resource) -> None:
        self._said.pop(resource.id, None)

    def forget(self, *, but: Collection[str]) -> None:
        for gone in set(self._said) - set(but):
            self._said.pop(gone, None)


def reason_of(error: Exception) -> str:
    return redacted_to(ERROR_CHARACTERS_MAX, str(error) or repr(error))


def end_of(found: LaunchStatus) -> str:
    """How a launch ended, or what keeps it from working; empty when all is well."""
    told = ", ".join(part for part in (_how(found.code), found.said) if part)
    if found.state is not LaunchState.RUNNING:
        told = told or "nobody knows of it"
    return redacted_to(ERROR_CHARACTERS_MAX, told)


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def why_not_stopped(error: Exception) -> str:
    return f"{NOT_STOPPED}: {reason_of(error)}"


def not_stopped(resource: Resource) -> str | None:
    """Why it could not be stopped the last time, if that was tried. Its error may as well be how
    its worker ended, before anybody wanted it gone."""
    error = resource.error or ""
    return error if resource.wanted_released and error.startswith(NOT_STOPPED) else None
