"""/v1/ids: which ids begin so. Every other route takes an id as a whole.

A program that says a short id must not reach another job than it means because its own is gone;
so it is for a person's command to ask, and to say what it found.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.routes.jobs import Served
from headrace.coordinator.service import Coordinator
from headrace.errors import ID_PREFIX_MIN
from headrace.store.engine import reading
from headrace.store.id_lookup import ID_DIGITS, IdKind, beginning_with
from headrace.views import IdList

LISTED_MAX = 10  # ids in one answer: more than one is too many already

router = APIRouter(prefix="/v1/ids", tags=["ids"])

Prefix = Annotated[str, Query(pattern=f"^[0-9a-f]{{{ID_PREFIX_MIN},{ID_DIGITS}}}$")]


@router.get("")
def listed(kind: IdKind, prefix: Prefix, coordinator: Coordinator = Served) -> IdList:
    with reading(coordinator.engine) as conn:
        return IdList(ids=tuple(beginning_with(conn, kind, prefix, most=LISTED_MAX)))
