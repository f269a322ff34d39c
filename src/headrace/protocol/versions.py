"""Since when each part of the protocol exists, and what a side of an older version is told.

A program speaks its own version, N, and the one before it. A worker begins with its own; a
coordinator that does not speak it says which ones it does, and the worker goes on in the newest
that both have. Every answer says what the leader speaks, so that a worker speaks its own version
again as soon as a leader does. A coordinator shapes each answer for the version of the sync:

- a field that the version does not know is left out, unless it is *vital*: then whoever does not
  know it would do the wrong thing, and a message that needs it can't be said at all;
- a task of a kind that the version does not know is not given, nor one whose payload can't be
  said: it stays for a worker that knows it;
- a report of a kind that the version does not know is kept until a leader knows it.

The tables here are complete: a test compares them with the snapshots of the schema.
"""

from __future__ import annotations

import builtins
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from headrace.model.task import TaskKind
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Assignment,
    ForgetPayload,
    Message,
    PipelinePayload,
)
from headrace.protocol.tables import (
    CommitPayload,
    DiscardPayload,
    DiscoverPayload,
    EvaluatePayload,
    PlanPayload,
    RewritePayload,
)

# What a task of each kind is given. A NOOP has no payload of its own.
PAYLOADS: Mapping[str, type[Message]] = {
    TaskKind.PIPELINE: PipelinePayload,
    TaskKind.SETTLE: PipelinePayload,
    TaskKind.FORGET: ForgetPayload,
    TaskKind.DISCOVER: DiscoverPayload,
    TaskKind.EVALUATE: EvaluatePayload,
    TaskKind.PLAN: PlanPayload,
    TaskKind.REWRITE: RewritePayload,
    TaskKind.COMMIT: CommitPayload,
    TaskKind.DISCARD: DiscardPayload,
    TaskKind.NOOP: Message,
}


@dataclass(frozen=True, slots=True)
class Since:
    """The version that a field came with."""

    version: int
    vital: bool = False  # a side that does not know it must not be told the rest either


_NO_KINDS: frozenset[str] = frozenset()


class NotSaid(Exception):
    """Something can't be said in a version. Its text is a clause: what, and since when it can."""


@dataclass(frozen=True, slots=True)
class WireVersions:
    """The versions that a program speaks, and what came after the oldest of them."""

    newest: int
    oldest: int
    fields: Mapping[str, Since]  # by "Type.field"
    kinds: Mapping[str, int]  # of tasks, each with the version that it came with
    reports: Mapping[str, int]  # likewise

    def speaks(self, version: int) -> bool:
        return self.oldest <= version <= self.newest

    def common(self, *, oldest: int, newest: int) -> int | None:
        """The newest version that a side which speaks these has in common with this one."""
        version = min(self.newest, newest)
        return version if version >= max(self.oldest, oldest) else None

    def unknown_kinds(self, version: int) -> frozenset[str]:
        """The kinds of tasks that a worker of that version does not know."""
        if version >= self.newest:
            return _NO_KINDS
        return frozenset(kind for kind, since in self.kinds.items() if since > version)

    def said(self, message: Message, version: int) -> bytes:
        """The message as JSON, as a side of that version knows it. Raises NotSaid."""
        if version >= self.newest:
            return message.__pydantic_serializer__.to_json(message)
        data = message.model_dump(mode="json")
        return json.dumps(self._shaped(type(message), data, version)).encode()

    def check(self, assignment: Assignment, version: int) -> None:
        """Raise NotSaid when a worker of that version would misread the assignment."""
        if version < self.newest:
            self._shaped(Assignment, assignment.model_dump(mode="json"), version)

    def _shaped(self, kind: type[BaseModel], data: Mapping[str, Any], version: int) -> Any:
        """What that version knows of an object of this type."""
        if kind is Assignment:
            return self._shaped_assignment(data, version)
        return self._known_fields(kind, data, version)

    def _shaped_assignment(self, data: Mapping[str, Any], version: int) -> Any:
        name = data["kind"]
        if (since := self.kinds.get(name, self.newest)) > version:
            raise NotSaid(f"{name} tasks came with protocol {since}")
        payload = self._shaped(PAYLOADS.get(name, Message), data["payload"], version)
        return {**self._known_fields(Assignment, data, version), "payload": payload}

    def _known_fields(
        self, kind: type[BaseModel], data: Mapping[str, Any], version: int
    ) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for name, value in data.items():
            since = self.fields.get(f"{kind.__name__}.{name}")
            if since is None or since.version <= version:
                part = _parts(kind).get(name)
                known[name] = value if part is None else self._within(part, value, version)
            elif since.vital and value != _default(kind, name):
                raise NotSaid(f"{name} of {kind.__name__} came with protocol {since.version}")
        return known

    def _within(self, part: Part, value: Any, version: int) -> Any:
        if value is None:
            return None
        match part:
            case ListOf():
                kept = [each for each in value if self._knows_report(each, version)]
                return [self._within(part.each, each, version) for each in kept]
            case MapOf():
                return {
                    name: self._within(part.each, each, version) for name, each in value.items()
                }
            case OneOf():
                return self._shaped(part.kind_of(value), value, version)

    def _knows_report(self, data: Any, version: int) -> bool:
        kind = cast("Mapping[str, Any]", data).get("kind") if isinstance(data, dict) else None
        return kind is None or self.reports.get(kind, 0) <= version


@dataclass(frozen=True, slots=True)
class OneOf:
    """A part of a message that is an object, of one of these types."""

    kinds: tuple[type[BaseModel], ...]

    def kind_of(self, data: Mapping[str, Any]) -> type[BaseModel]:
        """Which of them: where there are several, the object says so itself."""
        said = data.get("kind")
        return next(
            (k for k in self.kinds[1:] if k.model_fields["kind"].default == said), self.kinds[0]
        )


@dataclass(frozen=True, slots=True)
class ListOf:
    each: Part


@dataclass(frozen=True, slots=True)
class MapOf:
    each: Part


Part = OneOf | ListOf | MapOf


@cache
def _parts(kind: type[BaseModel]) -> Mapping[str, Part]:
    """The fields of a type that hold other types, by name."""
    found = {name: _part_of(field.annotation) for name, field in kind.model_fields.items()}
    return {name: part for name, part in found.items() if part is not None}


def _part_of(annotation: Any) -> Part | None:
    """The part that a field is, by its type; None when no object is in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return OneOf((annotation,))
    args = get_args(annotation)
    match get_origin(annotation):
        case typing.Annotated:
            return _part_of(args[0])
        case builtins.tuple | builtins.list:
            each = _part_of(args[0])
            return None if each is None else ListOf(each)
        case builtins.dict:
            each = _part_of(args[1])
            return None if each is None else MapOf(each)
        case typing.Union | types.UnionType:
            return _any_of([part for part in map(_part_of, args) if part is not None])
        case _:
            return None


def _any_of(parts: Sequence[Part]) -> Part | None:
    """Several types in one place are told apart by their `kind`; a list or a map stands alone."""
    objects = [part for part in parts if isinstance(part, OneOf)]
    if len(objects) > 1:
        return OneOf(tuple(kind for part in objects for kind in part.kinds))
    return parts[0] if parts else None


_NO_DEFAULT = object()


@cache
def _default(kind: type[BaseModel], name: str) -> Any:
    if kind.model_fields[name].is_required():
        return _NO_DEFAULT
    default = kind.model_fields[name].get_default(call_default_factory=True)
    return TypeAdapter[Any](Any).dump_python(default, mode="json")


# The plug-ins that every worker has which does not say what it has: it speaks version 4.
PLUGINS_OF_4: frozenset[str] = frozenset(
    {
        *("source FakeSource", "source HdfsFile", "source Iceberg", "source Jdbc"),
        *("source LocalFile", "transform FieldMapper", "transform Filter", "transform Sql"),
        *("sink Assert", "sink Console", "sink HdfsFile", "sink Iceberg", "sink InMemory"),
        *("sink Jdbc", "sink LocalFile"),
    }
)

# Every kind there is, and every report; the fields that came after version 4.
SPOKEN = WireVersions(
    newest=PROTOCOL_VERSION,
    oldest=PROTOCOL_VERSION - 1,
    fields={
        "Registered.protocol": Since(5),
        "Answer.protocol": Since(5),
        "Goodbye.protocol": Since(5),
        "Register.plugins": Since(5),
    },
    kinds=dict.fromkeys(TaskKind, 4),
    reports={
        **dict.fromkeys(("EPOCH_PLANNED", "EPOCH_PREPARED", "EPOCH_COMPLETED", "TASK_ENDED"), 4),
        "TASK_GIVEN_BACK": 5,
    },
)
