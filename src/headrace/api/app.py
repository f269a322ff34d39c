"""The FastAPI application: routes, error handlers and the request guard around one coordinator.

It also declares errors in /openapi.json: which statuses a route may answer with, and what the body
of an error looks like. They are derived from the error tree and from what a route takes, so that no
route can forget to declare one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from headrace import __version__
from headrace.api import errors
from headrace.api.errors import status_of_kind
from headrace.api.request_guard import OPEN_PATHS, READING, RequestGuard, StorableText
from headrace.api.routes import groups, jobs, system, tables
from headrace.api.routes.worker_protocol import WorkerProtocol
from headrace.coordinator.service import Coordinator
from headrace.errors import HeadraceError, Refused, Unavailable, kinds

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message"],
            "properties": {
                "kind": {"type": "string", "description": "What a program decides by."},
                "message": {"type": "string", "description": "For people; its words may change."},
                "problems": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Of BadJob: all that is wrong with the job, 20 at most.",
                },
                "leader": {
                    "type": "string",
                    "nullable": True,
                    "description": "Of NotLeader: who leads, where it is known.",
                },
            },
        }
    },
}
ERROR_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
# Answered before a route is reached; the other statuses come from the error tree.
BEFORE_ROUTING: Mapping[int, tuple[str, type[HeadraceError]]] = {
    403: ("It came under a foreign name, or from a web page of another place", Refused),
    408: ("Its head or its body did not come in time", Unavailable),
    413: ("Its body is too large", Refused),
    415: ("Its body is not application/json", Refused),
    431: ("Its head is too large", Refused),
}
# Routes that take the name of something outside of their path: `restore`, `catalog`.
NAMES_OUTSIDE_PATH = frozenset({("POST", "/v1/jobs"), ("GET", "/v1/tables")})
MEANINGS = {
    401: "No token was shown, or another one",
    404: "There is no such thing",
    422: "It can't be granted; repeating it unchanged will not help",
    503: "Something outside is down, or there are too many connections; try again",
}


def make_app(coordinator: Coordinator, *, token: str | None) -> ASGIApp:
    """The application of this coordinator, which it starts and stops with itself. None as the
    `token`: only this machine is served."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        coordinator.start()
        yield
        await run_in_threadpool(coordinator.stop)

    # FastAPI's documentation pages load scripts from elsewhere; /openapi.json stays.
    app = FastAPI(
        title="Headrace", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.coordinator = coordinator
    app.include_router(jobs.router)
    app.include_router(jobs.logs_router)
    app.include_router(jobs.history_router)
    app.include_router(jobs.ids_router)
    app.include_router(tables.catalogs_router)
    app.include_router(tables.router)
    app.include_router(groups.router)
    app.include_router(groups.resources_router)
    app.include_router(system.router)
    errors.install_error_handlers(app)
    install_openapi(app)
    inner = WorkerProtocol(StorableText(app), coordinator)
    return RequestGuard(inner, token, address=coordinator.options.address)


def install_openapi(app: FastAPI) -> None:
    """Have the schema of `app` declare its error responses."""
    generate = app.openapi

    def with_errors() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            for path, methods in schema["paths"].items():
                for method, operation in methods.items():
                    _add_error_responses(operation, path, method.upper())
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas["Error"] = ERROR_SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, never sent
                schemas.pop(unused, None)
            app.openapi_schema = schema
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = with_errors


def _add_error_responses(operation: dict[str, Any], path: str, method: str) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # as FastAPI declares it
    takes = "parameters" in operation or "requestBody" in operation
    names = "{" in path or (method, path) in NAMES_OUTSIDE_PATH
    for status in _statuses(path, reads=method in READING, takes=takes, names=names):
        responses[str(status)] = {"description": _meaning(status), "content": ERROR_CONTENT}


def _statuses(path: str, *, reads: bool, takes: bool, names: bool) -> Iterator[int]:
    """Statuses of errors. `reads`: it has no body; `takes`: it has parameters or a body; `names`:
    it names something that may not exist."""
    if path not in OPEN_PATHS:
        yield 401
    yield 403
    if names:
        yield 404
    yield 408
    if not reads:
        yield from (413, 415)
    if takes or not reads:
        yield 422
    yield from (431, 503)


def _meaning(status: int) -> str:
    if status in BEFORE_ROUTING:
        text, kind = BEFORE_ROUTING[status]
        return f"{text}. Kind: {kind.__name__}"
    named = sorted(name for name, kind in kinds().items() if status_of_kind(kind) == status)
    return f"{MEANINGS[status]}. Kinds: {', '.join(named)}"
