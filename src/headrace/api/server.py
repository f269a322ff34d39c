"""A coordinator process: its socket, the application, and a stop that hands over its lease."""

from __future__ import annotations

import errno
import gc
import logging
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from headrace.api.app import make_app
from headrace.api.connections import (
    BoundedHttp,
    ConnectionLimits,
    Connections,
    connections_max,
    files_allowed,
)
from headrace.api.request_guard import is_loopback
from headrace.clock import SystemClock
from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.service import Coordinator
from headrace.errors import BadSetting, PortInUse
from headrace.model.ids import RandomIds

log = logging.getLogger(__name__)

# Longer than a worker is ever silent, or its kept connections would be closed under it.
KEEP_ALIVE_S = 75
GRACEFUL_STOP_S = 3
BACKLOG = 1024
GC_THRESHOLDS = (20_000, 20, 20)  # new objects, then collections of each younger generation


class CoordinatorServer(uvicorn.Server):
    """On the first signal the lease is handed over, before it waits for connections to end."""

    def __init__(
        self, coordinator: Coordinator, token: str | None, limits: ConnectionLimits
    ) -> None:
        address = coordinator.options.address
        connections = Connections(limits, coordinator.metrics, token=token, address=address)
        http: Any = partial(BoundedHttp, connections=connections)  # called in place of the class
        super().__init__(
            uvicorn.Config(
                make_app(coordinator, token=token),
                http=http,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACEFUL_STOP_S,
                backlog=BACKLOG,
            )
        )
        self._coordinator = coordinator

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._coordinator.begin_stop()
        self._coordinator.notifier.wake_all()
        # The first signal stops gracefully, the second at once. The inherited handler would raise
        # the signal again at the end, and a clean stop would look like a death by signal.
        self.force_exit = self.should_exit
        self.should_exit = True


def serve_coordinator(
    options: CoordinatorSettings,
    bind: str,
    token: str | None,
    *,
    advertise: str | None = None,
    address_file: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises before it serves when it can't.

    The address in `options` is filled in here, because port 0 takes a free port.
    """
    host, port = _parse_bind(bind)
    if token is None and not is_loopback(host):
        raise BadSetting(
            f"--bind {bind} can be reached from other machines, and no token is set; set "
            "HEADRACE_TOKEN (or --token-file), or bind to 127.0.0.1"
        )
    with _listen(host, port) as sock:
        address = advertise or _address(host, sock)
        # Workers that we start must find us, unless all coordinators were named.
        groups = replace(options.groups, coordinators=options.groups.coordinators or (address,))
        with_address = replace(options, address=address, groups=groups)
        coordinator = Coordinator(with_address, SystemClock(), RandomIds())
        if address_file is not None:
            _write_atomically(address_file, address)
        limits = ConnectionLimits(connections_max(files_allowed()))
        log.info("coordinator serves", extra={"address": address, "connections_max": limits.most})
        server = CoordinatorServer(coordinator, token, limits)
        _freeze_garbage_collector()
        server.run(sockets=[sock])


def _freeze_garbage_collector() -> None:
    """Exempt all imported objects from garbage collection: they live as long as the process.

    Collecting them again and again took a tenth of the time of a busy coordinator.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _parse_bind(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadSetting(
            f"--bind {bind!r} can't be read; write it as HOST:PORT, e.g. 127.0.0.1:7300"
        )
    return host.strip("[]"), int(port)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)  # so that a second program sees the port in use at once
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise BadSetting(f"can't listen on {host}:{port}: {error.strerror}") from error
    return sock


def _address(host: str, sock: socket.socket) -> str:
    named = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104  compared
    shown = f"[{named}]" if ":" in named else named
    return f"http://{shown}:{sock.getsockname()[1]}"


def _write_atomically(path: Path, text: str) -> None:
    """Write all or nothing: whoever waits for the file must not read half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
