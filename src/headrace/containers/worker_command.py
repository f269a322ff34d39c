"""The command line of a worker, the same wherever it is started. No secret ever stands in it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.containers.launching import Launch

DRIVER_MEMORY = "spark.driver.memory"


def worker_arguments(
    launch: Launch,
    *,
    master: str,
    conf: Mapping[str, str],
    home: str | None = None,
    warehouse: str | None = None,
    folder: Path | None = None,
    token_file: str | None = None,
) -> Sequence[str]:
    """What follows `headrace`. `folder`: where the worker claims its launch, on this machine."""
    optional = {
        "--home": home,
        "--warehouse": warehouse,
        "--launch-dir": None if folder is None else str(folder),
        "--token-file": token_file,
    }
    return [
        *("worker", "--coordinator", ",".join(launch.coordinators)),
        *("--group", launch.group, "--slots", str(launch.threads)),
        *("--resource-id", launch.resource, "--launch", str(launch.number)),
        *("--spark-master", master),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def with_memory(conf: Mapping[str, str], memory_mb: int) -> Mapping[str, str]:
    """The heap of the worker's JVM, unless a setting names it already."""
    if memory_mb <= 0 or DRIVER_MEMORY in conf:
        return conf
    return {DRIVER_MEMORY: f"{memory_mb}m", **conf}


def local_master(launch: Launch) -> str:
    """As many cores as threads were asked for: other workers may be on the same machine."""
    return f"local[{launch.threads}]"


def this_program() -> Sequence[str]:
    """By this very Python."""
    return [sys.executable, "-m", "headrace.cli.main"]
