"""A coordinator process: a socket, the application, and a stop that hands over at once."""

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
from headrace.api.auth import is_loopback
from headrace.api.connections import (
    BoundedHttp,
    ConnectionLimits,
    Connections,
    connections_max,
    files_allowed,
)
from headrace.clock import SystemClock
from headrace.coordinator.options import Options
from headrace.coordinator.service import Coordinator
from headrace.errors import BadSetting, PortInUse
from headrace.model.ids import RandomIds

log = logging.getLogger(__name__)

# Longer than a worker's longest silence, or its kept connections die under it.
KEEP_ALIVE_S = 75
GRACEFUL_STOP_S = 3
BACKLOG = 1024
COLLECT_AFTER = (20_000, 20, 20)  # new objects, then collections of the younger generations


class CoordinatorServer(uvicorn.Server):
    """On the first signal the lease is handed over, before connections are waited for."""

    def __init__(
        self, coordinator: Coordinator, token: str | None, limits: ConnectionLimits
    ) -> None:
        address = coordinator.options.address
        all_of_them = Connections(limits, coordinator.metrics, token=token, address=address)
        http: Any = partial(BoundedHttp, connections=all_of_them)  # called as its class would be
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
        self._coordinator.bell.ring_all()
        # The first signal asks, the second insists. Not the inherited way, which raises the
        # signal again at the end, so that a clean stop would look like a death.
        self.force_exit = self.should_exit
        self.should_exit = True


def serve_coordinator(
    options: Options,
    bind: str,
    token: str | None,
    *,
    advertise: str | None = None,
    address_file: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises before it serves when it can't.

    The address in `options` is found here: the port may be free to choose.
    """
    host, port = _parse_bind(bind)
    if token is None and not is_loopback(host):
        raise BadSetting(
            f"--bind {bind} can be reached from other machines, and no token is set; set "
            "HEADRACE_TOKEN (or --token-file), or bind to 127.0.0.1"
        )
    with _listen(host, port) as sock:
        address = advertise or _address(host, sock)
        # Workers that we start must find us, and have been told of the others if there are any.
        groups = replace(options.groups, coordinators=options.groups.coordinators or (address,))
        told = replace(options, address=address, groups=groups)
        coordinator = Coordinator(told, SystemClock(), RandomIds())
        if address_file is not None:
            _write(address_file, address)
        limits = ConnectionLimits(connections_max(files_allowed()))
        log.info("coordinator serves", extra={"address": address, "connections_max": limits.most})
        server = CoordinatorServer(coordinator, token, limits)
        _spare_the_collector()
        server.run(sockets=[sock])


def _spare_the_collector() -> None:
    """What was imported stays for ever, so the collector need not look at it again and again.

    It took a tenth of the time of a busy coordinator.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


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


def _write(path: Path, text: str) -> None:
    """All of it or nothing: whoever waits for the file must not read half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
