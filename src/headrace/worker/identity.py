"""Who a worker is, as it tells the leader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace import __version__
from headrace.containers.worker_command import DRIVER_MEMORY
from headrace.protocol.messages import Register

_MEMORY = re.compile(r"(?P<number>\d{1,15})(?P<unit>[kmgt]?)b?")
_UNITS_MB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Identity:
    worker: str
    group: str
    slots: int
    control_slots: int
    host: str
    pid: int
    spark_application: str
    resource: str | None = None  # what it was started for; None: somebody started it by hand
    launch: int = 0  # which start of that
    memory_mb: int = 0  # of its JVM; 0: nobody said

    def introduction(self) -> Register:
        return Register(
            worker=self.worker,
            group=self.group,
            slots=self.slots,
            control_slots=self.control_slots,
            version=__version__,
            host=self.host,
            pid=self.pid,
            spark_application=self.spark_application,
            resource=self.resource,
            launch=self.launch,
            memory_mb=self.memory_mb,
        )


def memory_mb(conf: Mapping[str, str]) -> int:
    """The heap of the driver, as Spark writes it: 512m, 4g; 0 when it is left to Spark."""
    found = _MEMORY.fullmatch(conf.get(DRIVER_MEMORY, "").strip().lower())
    if found is None:
        return 0
    return int(int(found["number"]) * _UNITS_MB[found["unit"] or "m"])
