"""/v1/groups, /v1/workers: what is asked for, who works, and what the keeper does next.

Any coordinator answers. What comes next is told by the options of the one that is asked; the same
options belong to every coordinator of a store.
"""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.group_views import group_view, resource_view, worker_views
from headrace.api.routes.jobs import Served
from headrace.api.schemas import ChangeGroup, CreateGroup, ScaleGroup
from headrace.coordinator.groups.commands import Change, Drained, NewGroup
from headrace.coordinator.groups.known import known_group, known_worker
from headrace.coordinator.service import Coordinator
from headrace.store import groups
from headrace.store.engine import reading
from headrace.store.groups import Group
from headrace.views import WorkerList, WorkerView
from headrace.views_groups import DrainView, GroupList, GroupView, ResourceView

router = APIRouter(prefix="/v1", tags=["groups"])


@router.get("/groups")
def listed(coordinator: Coordinator = Served) -> GroupList:
    """Without their resources and workers: `GET /v1/groups/NAME` has them."""
    now_ms, options = coordinator.groups.now_ms(), coordinator.options
    with reading(coordinator.engine) as conn:
        found = groups.all_of_them(conn)
        views = [group_view(conn, each, options, now_ms=now_ms, whole=False) for each in found]
    return GroupList(groups=tuple(views))


@router.post("/groups", status_code=201)
def create(body: CreateGroup, coordinator: Coordinator = Served) -> GroupView:
    new = NewGroup(
        name=body.name,
        container=body.container,
        min_parallelism=body.min_parallelism,
        memory_mb=body.memory_mb,
        policy=body.policy,
        properties=body.properties,
    )
    return _view(coordinator, coordinator.groups.create(new))


@router.get("/groups/{name}")
def show(name: str, coordinator: Coordinator = Served) -> GroupView:
    with reading(coordinator.engine) as conn:
        found = known_group(conn, name)
    return _view(coordinator, found)


@router.patch("/groups/{name}")
def change(name: str, body: ChangeGroup, coordinator: Coordinator = Served) -> GroupView:
    wanted = Change(
        container=body.container,
        min_parallelism=body.min_parallelism,
        memory_mb=body.memory_mb,
        policy=body.policy,
        properties=body.properties,
    )
    return _view(coordinator, coordinator.groups.change(name, wanted))


@router.delete("/groups/{name}")
def remove(name: str, coordinator: Coordinator = Served, *, force: bool = False) -> GroupView:
    """It is shown as `removing` until its resources are released, and is gone then."""
    return _view(coordinator, coordinator.groups.remove(name, force=force))


@router.post("/groups/{name}/resources", status_code=201)
def scale(name: str, body: ScaleGroup, coordinator: Coordinator = Served) -> ResourceView:
    """Ask for a further resource. The key becomes its id: sent twice, it is asked for once."""
    made = coordinator.groups.scale(name, body.threads, key=body.key)
    with reading(coordinator.engine) as conn:
        now_ms = coordinator.groups.now_ms()
        return resource_view(conn, made, coordinator.options, now_ms=now_ms)


@router.get("/workers")
def list_workers(coordinator: Coordinator = Served) -> WorkerList:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return WorkerList(workers=tuple(worker_views(conn, coordinator.options, now_ms=now_ms)))


@router.get("/workers/{worker}")
def show_worker(worker: str, coordinator: Coordinator = Served) -> WorkerView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        found = known_worker(conn, worker)
        views = worker_views(conn, coordinator.options, now_ms=now_ms, only=found)
    return views[0]


@router.post("/workers/{worker}/resume")
def resume(worker: str, coordinator: Coordinator = Served) -> DrainView:
    """Take a drain back: it is given work again."""
    return _drained(coordinator, coordinator.groups.resume(worker))


@router.post("/workers/{worker}/drain")
def drain(worker: str, coordinator: Coordinator = Served) -> DrainView:
    """What it holds it finishes; nothing is given to it any more."""
    return _drained(coordinator, coordinator.groups.drain(worker))


def _drained(coordinator: Coordinator, drained: Drained) -> DrainView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        views = worker_views(conn, coordinator.options, now_ms=now_ms, only=drained.worker)
    return DrainView(worker=views[0], changed=drained.changed)


def _view(coordinator: Coordinator, group: Group) -> GroupView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return group_view(conn, group, coordinator.options, now_ms=now_ms)
