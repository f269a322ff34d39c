"""The command line of a worker, the same wherever it is started. No secret ever stands in it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.containers.launching import Launch
from headrace.containers.properties import SPARK_CONF, ContainerSetting

DRIVER_MEMORY = "spark.driver.memory"
# A worker adds its own to these, by what it has between. Both stand on the JVM's own command line,
# whichever way they came.
JOINED = {"spark.driver.extraClassPath": ":", "spark.driver.extraJavaOptions": " "}
HEAP_MIN_MB = 450  # with less, Spark refuses to start: 1.5 times what it reserves for itself


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


def check_heap(setting: ContainerSetting, memory_mb: int, *, share: float = 1.0) -> None:
    """That Spark starts with it. `share`: the part of the memory that is the heap; 0: not asked."""
    if memory_mb <= 0 or f"{SPARK_CONF}{DRIVER_MEMORY}" in setting.properties:
        return
    if memory_mb * share < HEAP_MIN_MB:
        least = math.ceil(HEAP_MIN_MB / share)
        raise setting.wrong(
            f"memory is {memory_mb} MB, and Spark does not start with a heap below {HEAP_MIN_MB} "
            f"MB; expected at least {least}, or 0 to leave it to the container"
        )


def local_master(launch: Launch) -> str:
    """As many cores as threads were asked for: other workers may be on the same machine."""
    return f"local[{launch.threads}]"


def this_program() -> Sequence[str]:
    """By this very Python."""
    return [sys.executable, "-m", "headrace.cli.main"]
