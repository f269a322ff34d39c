"""How errors become HTTP responses: only here a branch of the error tree is mapped to a status.

`Body` is the strict base of all request bodies, which stand beside their routes: a field that it
does not know is an error. Response bodies are defined once, as the client reads them
(headrace.client).
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from headrace.errors import (
    BadJob,
    Fenced,
    HeadraceError,
    NotFound,
    NotLeader,
    ProtocolRefused,
    Refused,
    Unauthorized,
    Unavailable,
)


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_STATUS_BY_BRANCH: tuple[tuple[type[HeadraceError], int], ...] = (
    (NotFound, 404),
    (Unauthorized, 401),
    (NotLeader, 421),
    (Refused, 422),
    (Fenced, 409),
    (Unavailable, 503),
)


def status_of(error: HeadraceError) -> int:
    return status_of_kind(type(error))


def status_of_kind(kind: type[HeadraceError]) -> int:
    return next((status for branch, status in _STATUS_BY_BRANCH if issubclass(kind, branch)), 500)


def body_of(error: HeadraceError) -> dict[str, object]:
    """The JSON body of an error, as /openapi.json declares it."""
    body: dict[str, object] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, NotLeader):
        body["leader"] = error.leader
    if isinstance(error, BadJob):
        body["problems"] = list(error.problems)
    if isinstance(error, ProtocolRefused):
        body |= {"oldest": error.oldest, "newest": error.newest}
    return {"error": body}


def response_to(error: HeadraceError, status: int | None = None) -> JSONResponse:
    """`status`: in place of the one that the error's branch has."""
    return JSONResponse(body_of(error), status or status_of(error))


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HeadraceError, _on_headrace_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)


def _on_headrace_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    return response_to(error)


def _on_invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors()
    )
    return response_to(Refused(f"the request can't be read: {problems}"))


def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """A 404 or 405 of the framework itself, in the form of our errors."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    mapped = NotFound("page", path)
    if error.status_code != 404:
        mapped = Refused(f"{request.method} {path}: {error.detail}")
    return JSONResponse(body_of(mapped), error.status_code, error.headers)
