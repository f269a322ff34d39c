"""A stand-in for Docker's command line: `python -I -S docker_stand_in.py FOLDER COMMAND …`.

As much of it as examples/container-toy asks for, with Docker's rules: a name is given once, a
container is created, running or exited, and all of it ends when its first process does. What runs
is no Headrace: it notes that it works, starts a process, and waits. It imports nothing but a little
of Python's own library, since each command is a process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

LIFE_MAX_S = 100  # a test that fails leaves nothing for ever
LOOK_S = 0.02
START_MAX_S = 60
SELF = (sys.executable, "-I", "-S", __file__)
FOLDER = Path(sys.argv[1])


def read(name: str) -> dict[str, Any]:
    if not (FOLDER / f"{name}.json").exists():
        sys.exit(f"Error response from daemon: No such container: {name}")
    return json.loads((FOLDER / f"{name}.json").read_text())


def write(name: str, **changed: Any) -> None:
    fresh = FOLDER / f"{name}.{os.getpid()}.tmp"
    fresh.write_text(json.dumps({**read(name), **changed}))
    fresh.replace(FOLDER / f"{name}.json")


def create(arguments: list[str]) -> None:
    given: dict[str, list[str]] = {}
    while arguments[0].startswith("--"):
        given.setdefault(arguments.pop(0), []).append(arguments.pop(0))
    (name,) = given["--name"]
    made = {
        "labels": dict(label.split("=", 1) for label in given["--label"]),
        "command": [*given["--entrypoint"], *arguments[1:]],
        "env": {each: os.environ[each] for each in given.get("--env", [])},
        "status": "created",
        "code": 0,
        "pid": 0,
    }
    fresh = FOLDER / f"{name}.{os.getpid()}.tmp"
    fresh.write_text(json.dumps(made))
    try:
        os.link(fresh, FOLDER / f"{name}.json")
    except FileExistsError:
        sys.exit(f'Error response from daemon: Conflict. The container name "/{name}" is in use')
    finally:
        fresh.unlink()


def start(name: str) -> None:
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if read(name)["status"] == "running":
            return
        command = [*SELF, str(FOLDER), "_monitor", name]
        with (FOLDER / f"{name}.log").open("ab") as log:
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + START_MAX_S
        while read(name)["status"] == "created" and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)


def monitor(name: str) -> None:
    """Docker's own process: the parent of the container's first one."""
    worker = subprocess.Popen(
        [*SELF, str(FOLDER), "_worker", name], process_group=0, stdout=sys.stdout
    )
    write(name, status="running", pid=worker.pid)
    code = worker.wait()
    with suppress(ProcessLookupError):  # it had started nothing, or that has ended
        os.killpg(worker.pid, signal.SIGKILL)
    write(name, status="exited", code=128 - code if code < 0 else code)


def work(name: str) -> None:
    """The container's first process."""
    signal.alarm(LIFE_MAX_S)
    child = subprocess.Popen(["sleep", str(LIFE_MAX_S)])
    print("works", flush=True)  # noqa: T201  it is its log
    with (FOLDER / f"{name}.notes").open("a") as notes:
        notes.write(f"{os.getpid()} {child.pid}\n")
    signal.pause()


def stop(grace_s: float, name: str) -> None:
    found = read(name)
    if found["status"] != "running":
        return
    os.kill(found["pid"], signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while read(name)["status"] == "running":
        if time.monotonic() > deadline_s:
            os.kill(found["pid"], signal.SIGKILL)
        time.sleep(LOOK_S)


def listed(pattern: str) -> list[str]:
    found = (path.stem for path in FOLDER.glob("*.json"))
    return [name for name in found if re.search(pattern.removeprefix("name="), name)]


def inspected(name: str) -> str:
    found = read(name)
    state = {"Status": found["status"], "ExitCode": found["code"]}
    return json.dumps([{"State": state, "Config": {"Labels": found["labels"]}}])


def main(command: list[str]) -> None:  # noqa: C901  a table of commands
    match command:
        case ["create", *arguments]:
            create(arguments)
        case ["start", name]:
            start(name)
        case ["stop", "--time", grace_s, name]:
            stop(float(grace_s), name)
        case ["rm", name]:
            if read(name)["status"] == "running":
                sys.exit("Error response from daemon: cannot remove a running container")
            (FOLDER / f"{name}.json").unlink()
        case ["logs", "--tail", lines, name]:
            log = FOLDER / f"{name}.log"
            found = log.read_text().splitlines() if log.exists() else []
            print("\n".join(found[-int(lines) :]))  # noqa: T201
        case ["container", "ls", "--all", "--quiet", "--filter", pattern]:
            print("\n".join(listed(pattern)))  # noqa: T201
        case ["container", "inspect", name]:
            print(inspected(name))  # noqa: T201
        case ["_monitor", name]:
            monitor(name)
        case ["_worker", name]:
            work(name)
        case _:
            sys.exit(f"unknown command: {command}")


if __name__ == "__main__":
    main(sys.argv[2:])
