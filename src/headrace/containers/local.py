"""The kinds local and spark: a worker is a process of this machine; its executors may be elsewhere.

pyspark starts the JVM of a driver by `spark-submit` in client mode, from SPARK_HOME or from the
pyspark package. So a worker against spark://, yarn or k8s:// is the same process with another
master. `spark-submit` takes settings on its command line, which every user of a machine can read:
settings whose name or value looks secret go through a file that only its owner can read.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.containers.container import (
    EXPORT,
    JOINED,
    SPARK_CONF,
    ContainerSetting,
    KnownProperties,
    Launch,
    Supports,
    check_heap,
    flag,
    launch_properties,
    local_master,
    this_program,
    with_memory,
    with_prefix,
    worker_arguments,
)
from headrace.containers.detached import SECRETS, DetachedWorkers, Prepare, PreparedStart
from headrace.model.text import holds_secret

LOCAL = KnownProperties("local", ("master", "warehouse"), whole=("supports-restart",))
SPARK = KnownProperties(
    "spark",
    ("master", "spark-home", "warehouse"),
    required=("master",),
    whole=("deploy-mode", "supports-restart"),
)
CLUSTERS = ("spark://", "yarn", "k8s://")
SECRETS_MODE = 0o600
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


def local_workers(
    setting: ContainerSetting, *, program: Sequence[str] | None = None
) -> DetachedWorkers:
    """`program`: the command that takes the arguments of a worker; by default `headrace`."""
    LOCAL.check(setting)
    return _workers(setting, program, LOCAL)


def spark_workers(
    setting: ContainerSetting, *, program: Sequence[str] | None = None
) -> DetachedWorkers:
    SPARK.check(setting)
    _check_spark(setting)
    return _workers(setting, program, SPARK, _check_spark)


def _check_spark(setting: ContainerSetting) -> None:
    master, mode = setting.properties["master"], setting.properties.get("deploy-mode", "client")
    if not master.startswith(CLUSTERS):
        raise setting.wrong(
            f"property 'master' is {master!r}; expected spark://HOST:PORT, yarn or k8s://URL. A "
            "worker without a cluster is of the kind local"
        )
    if mode != "client":
        raise setting.wrong(
            f"property 'deploy-mode' is {mode!r}; expected client: the worker is the driver, and "
            "runs here. For a driver in a pod there is the kind kubernetes"
        )
    home = setting.properties.get("spark-home")
    if home is not None and not (Path(home) / "bin" / "spark-submit").is_file():
        raise setting.wrong(
            f"property 'spark-home' is {home!r}, and there is no bin/spark-submit in it; expected "
            "the folder of a Spark distribution, or leave it out to use the one of pyspark"
        )


def _nothing_else(setting: ContainerSetting) -> None:
    """The check of a kind whose properties take any value."""


def _workers(
    setting: ContainerSetting,
    program: Sequence[str] | None,
    known: KnownProperties,
    check_values: Callable[[ContainerSetting], None] = _nothing_else,
) -> DetachedWorkers:
    def check(group: str, properties: Mapping[str, str], memory_mb: int) -> None:
        merged = known.for_group(setting, group, properties)
        check_values(merged)
        check_heap(merged, memory_mb)

    return DetachedWorkers(
        setting,
        _preparing(setting, program or this_program()),
        supports=Supports(restart=flag(setting, "supports-restart", default=True)),
        check=check,
    )


def _preparing(setting: ContainerSetting, program: Sequence[str]) -> Prepare:
    def prepare(launch: Launch, folder: Path) -> PreparedStart:
        properties = launch_properties(setting, launch)
        conf = with_memory(with_prefix(properties, SPARK_CONF), launch.memory_mb)
        secret = {
            name: value
            for name, value in conf.items()
            if name not in JOINED and holds_secret(name, value)
        }
        arguments = worker_arguments(
            launch,
            master=properties.get("master") or local_master(launch),
            conf={name: value for name, value in conf.items() if name not in secret},
            home=str(setting.home.absolute()),
            warehouse=properties.get("warehouse"),
            folder=folder,
        )
        return PreparedStart([*program, *arguments], _environment(properties, secret, folder))

    return prepare


def _environment(
    properties: Mapping[str, str], secret: Mapping[str, str], folder: Path
) -> Mapping[str, str]:
    environment = with_prefix(properties, EXPORT)
    if home := properties.get("spark-home"):
        environment["SPARK_HOME"] = home
    if secret:
        path = _written(folder / SECRETS, secret)
        user_arguments = environment.get(SUBMIT_ARGUMENTS, "pyspark-shell")
        own_arguments = shlex.join(["--properties-file", str(path), "--load-spark-defaults"])
        environment[SUBMIT_ARGUMENTS] = f"{own_arguments} {user_arguments}"
    return environment


def _written(path: Path, conf: Mapping[str, str]) -> Path:
    """Write a file that java.util.Properties reads, and that only its owner can read."""
    path.touch(mode=SECRETS_MODE)
    path.write_text("".join(f"{_escaped(k)}={_escaped(v)}\n" for k, v in conf.items()))
    return path


def _escaped(text: str) -> str:
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        special.get(character) or (f"\\{character}" if character in "\\ =:#!" else character)
        for character in text
    )
