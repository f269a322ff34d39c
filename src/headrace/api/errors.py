"""The error tree, as HTTP: one place maps a branch to a status."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.errors import (
    Fenced,
    HeadraceError,
    NotFound,
    NotLeader,
    Refused,
    Unauthorized,
    Unavailable,
)

_STATUS: tuple[tuple[type[HeadraceError], int], ...] = (
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
    return next((status for branch, status in _STATUS if issubclass(kind, branch)), 500)


def body_of(error: HeadraceError) -> dict[str, object]:
    body: dict[str, object] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, NotLeader):
        body["leader"] = error.leader
    return {"error": body}


def response_to(error: HeadraceError, status: int | None = None) -> JSONResponse:
    return JSONResponse(body_of(error), status or status_of(error))


def install(app: FastAPI) -> None:
    app.add_exception_handler(HeadraceError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _elsewhere)


def _ours(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    return response_to(error)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors()
    )
    return response_to(Refused(f"the request can't be read: {problems}"))


def _elsewhere(request: Request, error: Exception) -> JSONResponse:
    """No such page, or not by this method: the frame's own words, in the form of ours."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    ours = NotFound("page", path)
    if error.status_code != 404:
        ours = Refused(f"{request.method} {path}: {error.detail}")
    return JSONResponse(body_of(ours), error.status_code, error.headers)
