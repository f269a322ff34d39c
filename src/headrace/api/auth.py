"""Who may speak to a coordinator: anybody on loopback, or whoever shows the token."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.api.errors import response_to
from headrace.errors import Unauthorized

OPEN_PATHS = frozenset({"/health"})  # what a load balancer asks; says nothing about jobs


class RequireToken:
    """Middleware that answers 401 unless the request shows the token. None: no token is needed."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            await response_to(Unauthorized())(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"] in OPEN_PATHS:
            return True
        shown = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        return hmac.compare_digest(shown, self._expected)
