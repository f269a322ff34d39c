"""Which launch of which resource this worker is, when a container started it.

A worker on the machine of its coordinator claims its launch before anything else: the second
process of one launch ends here. Elsewhere there is no folder to claim in; the leader decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.containers import claims
from headrace.errors import BadSetting, LaunchOver

SPARK_APPLICATION = "spark-application"


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    resource: str
    number: int
    folder: Path | None = None

    def found(self, *, spark_application: str) -> None:
        """Tell the container what is known of this worker only now."""
        if self.folder is not None:
            claims.note(self.folder, {SPARK_APPLICATION: spark_application})


def claimed(resource: str | None, number: int | None, folder: Path | None) -> WorkerLaunch | None:
    """The launch that this process is, claimed; None for a worker that nobody launched.

    Raises LaunchOver when another process is this launch.
    """
    if resource is None and number is None and folder is None:
        return None
    if resource is None or number is None:
        raise BadSetting(
            "--resource-id, --launch and --launch-dir belong together: a launch has a resource and "
            "a number. Give both, or none for a worker that you start yourself"
        )
    other = None if folder is None else claims.take(folder)
    if other is None:
        return WorkerLaunch(resource, number, folder)
    if other.withdrawn:
        raise LaunchOver(
            f"launch {number} of resource {resource!r} was stopped before it had begun"
        )
    raise LaunchOver(
        f"launch {number} of resource {resource!r} is process {other.pid} on host {other.host}; "
        "it is started once only"
    )
