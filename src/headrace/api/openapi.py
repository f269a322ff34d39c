"""What /openapi.json says of errors: which a route may answer with, and what they look like.

It is made from the error tree and from what a route takes, so that no route can forget to say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI

from headrace.api.auth import OPEN_PATHS, READING
from headrace.api.errors import status_of_kind
from headrace.errors import HeadraceError, Refused, Unavailable, kinds

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message"],
            "properties": {
                "kind": {"type": "string", "description": "What a program decides by."},
                "message": {"type": "string", "description": "For people; its words may change."},
                "leader": {
                    "type": "string",
                    "nullable": True,
                    "description": "Of NotLeader: who leads, where it is known.",
                },
            },
        }
    },
}
CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
# Those that are answered before a route is reached; the others are of the error tree.
AT_THE_DOOR: Mapping[int, tuple[str, type[HeadraceError]]] = {
    403: ("It came under a foreign name, or from a web page of another place", Refused),
    408: ("Its head or its body did not come in time", Unavailable),
    413: ("Its body is too large", Refused),
    415: ("Its body is not application/json", Refused),
    431: ("Its head is too large", Refused),
}
# Routes that are given the name of something elsewhere than in their path: `restore`, `catalog`.
NAMING = frozenset({("POST", "/v1/jobs"), ("GET", "/v1/tables")})
MEANINGS = {
    401: "No token was shown, or another one",
    404: "There is no such thing",
    422: "It can't be granted; repeating it unchanged will not help",
    503: "Something outside is down, or there are too many connections; try again",
}


def install(app: FastAPI) -> None:
    made = app.openapi

    def with_errors() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            for path, methods in schema["paths"].items():
                for method, operation in methods.items():
                    _tell_errors(operation, path, method.upper())
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas["Error"] = ERROR
            for unsaid in ("HTTPValidationError", "ValidationError"):  # the frame's, never sent
                schemas.pop(unsaid, None)
            app.openapi_schema = schema
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = with_errors


def _tell_errors(operation: dict[str, Any], path: str, method: str) -> None:
    answers = operation["responses"]
    answers.pop("422", None)  # as the frame would say it
    takes = "parameters" in operation or "requestBody" in operation
    names = "{" in path or (method, path) in NAMING
    for status in _statuses(path, reads=method in READING, takes=takes, names=names):
        answers[str(status)] = {"description": _meaning(status), "content": CONTENT}


def _statuses(path: str, *, reads: bool, takes: bool, names: bool) -> Iterator[int]:
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
    if status in AT_THE_DOOR:
        text, kind = AT_THE_DOOR[status]
        return f"{text}. Kind: {kind.__name__}"
    named = sorted(name for name, kind in kinds().items() if status_of_kind(kind) == status)
    return f"{MEANINGS[status]}. Kinds: {', '.join(named)}"
