"""The application: routes, errors and the token, wired around one coordinator."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from headrace import __version__
from headrace.api import errors, openapi
from headrace.api.auth import Guard
from headrace.api.routes import (
    catalogs,
    groups,
    history,
    ids,
    jobs,
    logs,
    resources,
    system,
    tables,
)
from headrace.api.routes.workers import WorkerProtocol
from headrace.api.storable import StorableText
from headrace.coordinator.service import Coordinator


def make_app(coordinator: Coordinator, *, token: str | None) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        coordinator.start()
        yield
        await run_in_threadpool(coordinator.stop)

    # The pages that show the API load their scripts from elsewhere; /openapi.json stays.
    app = FastAPI(
        title="Headrace", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.coordinator = coordinator
    app.include_router(jobs.router)
    app.include_router(logs.router)
    app.include_router(history.router)
    app.include_router(ids.router)
    app.include_router(catalogs.router)
    app.include_router(tables.router)
    app.include_router(groups.router)
    app.include_router(resources.router)
    app.include_router(system.router)
    errors.install(app)
    openapi.install(app)
    served = WorkerProtocol(StorableText(app), coordinator)
    return Guard(served, token, address=coordinator.options.address)
