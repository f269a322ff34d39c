"""A group, a worker or a resource as a person names it, or the name that was probably meant."""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.errors import NotFound, Refused
from headrace.jobfile.suggest import hint
from headrace.model.measures import count
from headrace.model.text import utc
from headrace.store import given_up, groups, resources, workers
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker


def known_group(conn: Connection, name: str) -> Group:
    found = groups.get(conn, name)
    if found is None:
        names = [each.name for each in groups.all_of_them(conn)]
        raise NotFound("group", name, way_out=hint(name, names, noun="groups"))
    return found


def known_worker(conn: Connection, worker_id: str) -> Worker:
    found = next((each for each in workers.registered(conn) if each.id == worker_id), None)
    if found is None:
        raise NotFound(
            "worker",
            worker_id,
            way_out="`headrace worker list` shows those that are registered; one that died or "
            "said goodbye is not",
        )
    return found


def known_resource(conn: Connection, named: str) -> Resource:
    """By its own id, or by that of its worker."""
    found = resources.get(conn, named)
    if found is not None:
        return found
    worker = next((each for each in workers.registered(conn) if each.id == named), None)
    if worker is None:
        raise NotFound("resource or worker", named, way_out=_way_out(conn, named))
    mine = resources.get(conn, worker.resource_id) if worker.resource_id else None
    if mine is None:
        raise Refused(
            f"worker {named} has no resource: somebody started it by hand, so only he can stop it, "
            f"and has its log. `headrace worker drain {named}` gives it nothing more"
        )
    return mine


def _way_out(conn: Connection, named: str) -> str:
    for group in groups.all_of_them(conn):
        for gone in given_up.of(conn, group.name):
            if gone.resource == named:
                tried = count(gone.attempts, "attempt")
                return f"it was given up at {utc(gone.at_ms)}, after {tried}: {gone.reason}"
    return "`headrace group show` has the resources of a group, `headrace worker list` the workers"
