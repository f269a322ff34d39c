"""A real coordinator on each store, spoken to through the application itself."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.api.app import make_app
from headrace.clock import SystemClock
from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.service import Coordinator
from headrace.model.ids import RandomIds
from headrace.model.jobs.epoch import Retention
from tests.stores import KEYS

ADDRESS = "http://here:7300"
LOOPBACK = "http://127.0.0.1:7300"
BOUND_S = 120.0  # for a state to come, also on a busy machine
LOOK_S = 0.02
CLOCK = SystemClock()


def eventually(met: Callable[[], bool]) -> None:
    end_s = CLOCK.monotonic_s() + BOUND_S
    while not met():
        assert CLOCK.monotonic_s() < end_s, "it did not happen in time"
        threading.Event().wait(LOOK_S)


@contextmanager
def served(
    store_url: str, *, token: str | None = None, retention: Retention | None = None
) -> Generator[TestClient]:
    options = CoordinatorSettings(
        store_url, ADDRESS, retention=retention or Retention(), secret_keys=KEYS
    )
    coordinator = Coordinator(options, CLOCK, RandomIds())
    # The name under which a client of this machine would reach it.
    with TestClient(make_app(coordinator, token=token), base_url=LOOPBACK) as client:
        listed = listed_statuses(client, token)
        client.event_hooks = {"response": [partial(check_listed, listed)]}
        yield client


Listed = Mapping[tuple[str, str], Collection[str]]
# By whether a token is asked for. To describe the routes takes longer than most tests here.
_described: dict[bool, dict[str, Any]] = {}


def described(client: TestClient, token: str | None = None) -> dict[str, Any]:
    """What /openapi.json says of each path; it follows from the program alone."""
    if (known := _described.get(token is not None)) is not None:
        return known
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    _described[token is not None] = found = client.get("/openapi.json", headers=shown).json()[
        "paths"
    ]
    return found


def listed_statuses(client: TestClient, token: str | None) -> Listed:
    """What a route may answer with, by method and path."""
    return {
        (method.upper(), path): operation["responses"].keys()
        for path, operations in described(client, token).items()
        for method, operation in operations.items()
    }


def check_listed(listed: Listed, answer: Any) -> None:
    """Whatever any test makes a route answer has to be listed."""
    method, path = answer.request.method, answer.request.url.raw_path.decode().partition("?")[0]
    for (known, template), statuses in listed.items():
        if known == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            assert str(answer.status_code) in statuses, f"{method} {template}"
            return


@pytest.fixture(scope="module")
def shared(sqlite_template: Path, stores_folder: Path) -> Iterator[TestClient]:
    """One for all tests of a file, of a coordinator that leads: for what changes nothing."""
    path = Path(tempfile.mkdtemp(dir=stores_folder)) / "store.db"
    shutil.copyfile(sqlite_template, path)
    with served(f"sqlite:///{path}") as client:
        eventually(lambda: client.get("/health").json()["leading"])
        yield client


@pytest.fixture
def api(store_url: str) -> Iterator[TestClient]:
    """The API of a coordinator that leads."""
    with served(store_url) as client:
        eventually(lambda: client.get("/health").json()["leading"])
        yield client
