"""Why something can't be had of a group as it is now, and what to do instead."""

from __future__ import annotations

from headrace.errors import BadSetting, Refused
from headrace.model.measures import count
from headrace.store.group_users import Users
from headrace.store.groups import Group
from headrace.store.resources import Resource


def being_removed(name: str) -> Refused:
    return Refused(
        f"group {name!r} is being removed; when `headrace group list` no longer shows it, "
        f"`headrace group create {name}` makes it anew"
    )


def another_one(there: Group) -> Refused:
    return Refused(
        f"there is a group {there.name!r} already, of container {there.container!r}, and it is "
        f"another than this (a worker that registers makes its group); change it with "
        f"`headrace group set {there.name}`, or take another name"
    )


def id_taken(by: Resource) -> BadSetting:
    return BadSetting(
        f"resource id {by.id!r} is taken, by {count(by.threads, 'thread')} of group {by.group!r}; "
        "take another, or leave it out"
    )


def being_released(worker: str, resource: Resource) -> Refused:
    return Refused(
        f"worker {worker} can't be given work again: its resource {resource.id} is being released, "
        f"and it is stopped when it holds nothing. `headrace group scale {resource.group} "
        f"--threads {resource.threads}` asks for another one"
    )


def in_use(name: str, users: Users) -> Refused:
    said: list[str] = []
    if users.jobs:
        said.append(f"{count(users.jobs, 'job')} ({', '.join(users.named)})")
    if users.catalogs:
        said.append(f"catalogs {', '.join(users.catalogs)}")
    if users.tables:
        said.append(count(users.tables, "table"))
    if users.by_hand:
        said.append(f"{count(users.by_hand, 'worker')} that you started yourself")
    return Refused(
        f"group {name!r} is used by {', '.join(said)}; have them use another group first, or "
        f"delete it all the same with `headrace group delete {name} --force`: what needs its "
        "workers waits then"
    )
