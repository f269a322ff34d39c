"""The checks of `headrace doctor`. Each finds out one thing, and changes nothing."""

from __future__ import annotations

import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import psutil

from headrace.cli.local import up_file
from headrace.cli.store import parse_store, secret_keys
from headrace.client.client import Client
from headrace.config import Settings
from headrace.errors import ExtraMissing, HeadraceError
from headrace.spark.installation import (
    find_java,
    find_spark,
    missing_jars,
    resolve_jars,
    spark_version,
)
from headrace.store.core.encryption import check_key
from headrace.store.core.engine import is_sqlite, open_store, reading
from headrace.store.core.keyring import KeySource
from headrace.store.core.schema import check_program
from headrace.store.migrate import revision

OLDEST_PYTHON = (3, 11)
DISK_WARN_BYTES = 5_000_000_000
DISK_FAIL_BYTES = 500_000_000
DEFAULT_PORT = 7300
ARCHIVES = "*.jsa"  # class-data archives, as the JVM calls them

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    subject: str
    verdict: Verdict
    text: str  # what was found, and when it is not ok, how to mend it

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def examine(
    settings: Settings,
    *,
    store_url: str | None,
    fetch: bool,
    say: Callable[[str], None],
    secret_key_file: Path | None = None,
) -> list[CheckResult]:
    """All checks, ordered so that what mends one may be what the next one needs."""
    url = store_url or f"sqlite:///{settings.home / 'store.db'}"
    checks: list[tuple[str, Callable[[], CheckResult]]] = [
        ("python", _python),
        *_spark_checks(settings, fetch=fetch, say=say),
        ("store", lambda: _store(url, secret_keys(secret_key_file, settings))),
        ("port", lambda: _port(DEFAULT_PORT)),
        ("disk of home", lambda: _disk("disk of home", settings.home)),
        ("disk of cache", lambda: _disk("disk of cache", settings.cache_dir)),
        ("headrace up", lambda: _up(settings)),
    ]
    return [_run_check(subject, check) for subject, check in checks]


def _run_check(subject: str, check: Callable[[], CheckResult]) -> CheckResult:
    """One of our own errors is a failed check: its message says how to mend it."""
    try:
        return check()
    except HeadraceError as error:
        return CheckResult(subject, "fail", str(error))


def _python() -> CheckResult:
    text = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return CheckResult("python", "ok", text)
    return CheckResult("python", "fail", f"{text}; headrace needs 3.11 or newer")


def _spark_checks(
    settings: Settings, *, fetch: bool, say: Callable[[str], None]
) -> list[tuple[str, Callable[[], CheckResult]]]:
    """What a worker needs. A machine without Spark has none, and needs no Java either."""
    try:
        folder = find_spark()
    except ExtraMissing as error:
        verdict: Verdict = "fail" if fetch else "warn"  # Spark's own Ivy fetches the jars
        text = f"{error}. A coordinator runs without it"
        return [("spark", lambda: CheckResult("spark", verdict, text))]
    installed = CheckResult("spark", "ok", f"{spark_version()} at {folder}")
    return [
        ("spark", lambda: installed),
        ("java", _java),
        ("jars", lambda: _jars(settings, fetch=fetch, say=say)),
        ("class-data archive", lambda: _archive(settings.cache_dir)),
    ]


def _java() -> CheckResult:
    java = find_java()
    return CheckResult("java", "ok", f"{java.version} at {java.executable}")


def _jars(settings: Settings, *, fetch: bool, say: Callable[[str], None]) -> CheckResult:
    cache_dir = settings.cache_dir
    if fetch:
        own = settings.ivy_settings
        resolve_jars(cache_dir, java=find_java(), say=say, ivy_settings=own)
    missing = missing_jars(cache_dir)
    if not missing:
        text = (
            f"all that a start needs are in {cache_dir / 'jars'}; others come when a job needs them"
        )
        return CheckResult("jars", "ok", text)
    listed = ", ".join(missing)
    return CheckResult(
        "jars",
        "warn",
        f"not in {cache_dir / 'jars'} yet: {listed}; the first start fetches them, or fetch them "
        "now with `headrace doctor --fetch`",
    )


def _archive(cache_dir: Path) -> CheckResult:
    archives = sorted(cache_dir.rglob(ARCHIVES)) if cache_dir.is_dir() else []
    if archives:
        return CheckResult("class-data archive", "ok", str(archives[-1]))
    return CheckResult(
        "class-data archive",
        "warn",
        "not made yet; the first worker that stops cleanly makes it, and later starts are faster",
    )


def _store(url: str, keys: KeySource | None) -> CheckResult:
    parsed = parse_store(url)
    shown = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        return CheckResult("store", "ok", f"{shown} is not there yet; the first start makes it")
    engine = open_store(url, keys=keys)
    try:
        with reading(engine) as conn:
            current = revision(conn)
            if current is not None:
                check_program(conn)
            if current is not None or not is_sqlite(conn):
                check_key(conn, made=current is not None)
    finally:
        engine.dispose()
    at = f"at revision {current}" if current else "empty; the first start prepares it"
    return CheckResult("store", "ok", f"{shown}, {at}")


def _port(port: int) -> CheckResult:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return CheckResult(
                "port",
                "warn",
                f"127.0.0.1:{port} can not be had ({error.strerror}); `headrace up --port 0` "
                "takes a free one",
            )
    return CheckResult("port", "ok", f"127.0.0.1:{port} is free")


def _disk(subject: str, folder: Path) -> CheckResult:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:,.1f} GB free for {folder}"
    if free < DISK_FAIL_BYTES:
        return CheckResult(subject, "fail", f"{text}; make room, or choose another place")
    if free < DISK_WARN_BYTES:
        return CheckResult(subject, "warn", f"{text}; it may not last")
    return CheckResult(subject, "ok", text)


def _up(settings: Settings) -> CheckResult:
    path = settings.home / up_file.NAME
    up = up_file.read(settings.home)
    if up is None:
        return CheckResult("headrace up", "ok", "not running for this folder")
    token = settings.token.get_secret_value() if settings.token else None
    if up_file.find(settings.home, lambda url: Client([url], token=token)):
        return CheckResult("headrace up", "ok", f"runs at {up.address}, pid {up.pid}")
    alive = psutil.pid_exists(up.pid)
    way_out = f"stop process {up.pid}, then delete {path}" if alive else f"delete {path}"
    return CheckResult("headrace up", "warn", f"{up.address} does not answer; {way_out}")
