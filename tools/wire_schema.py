"""The schema of the worker protocol, as it is sent, and which changes an older side can bear.

`tests/protocol/schema_vN.json` is the schema of version N: of every message between coordinators
and workers, and of every payload and result of a task. `make reference` writes that of the present
version, a test compares it with the models, and those of earlier versions stay as they are. A
change that an older side of the *same* version would misunderstand is refused by both.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from headrace import protocol
from headrace.protocol.messages import PROTOCOL_VERSION, Message
from tools.tree import ROOT

SNAPSHOTS = ROOT / "tests" / "protocol"
FOR_PEOPLE = frozenset({"title", "description", "examples"})  # of a schema: what nobody sends

Schema = dict[str, Any]


def path_of(version: int) -> Path:
    return SNAPSHOTS / f"schema_v{version}.json"


def snapshot(version: int) -> Schema:
    """The schema of every type of that version, by name."""
    return json.loads(path_of(version).read_text(encoding="utf-8"))


def messages() -> Mapping[str, type[Message]]:
    """Every message, payload and result, by name."""
    for module in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
        importlib.import_module(module.name)
    found = {kind.__name__: kind for kind in _kinds_of(Message)}
    return dict(sorted(found.items()))


def _kinds_of(base: type[Message]) -> Iterator[type[Message]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith(f"{protocol.__name__}."):
            yield kind
            yield from _kinds_of(kind)


def present() -> Schema:
    """The schema of every type that the present tree sends, by name."""
    kinds: list[tuple[type[BaseModel], Any]] = [(m, "validation") for m in messages().values()]
    _, schema = models_json_schema(kinds)
    return {name: _plain(each) for name, each in sorted(schema["$defs"].items())}


def _plain(schema: Any, *, named: bool = False) -> Any:
    """Without what is for people. `named`: the keys are names of properties, which all stay."""
    if isinstance(schema, list):
        return [_plain(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(value, named=key == "properties" and not named)
        for key, value in cast("Schema", schema).items()
        if named or key not in FOR_PEOPLE
    }


def text_of(schema: Schema) -> str:
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def page() -> str:
    """What the snapshot of the present version must hold.

    Raises ValueError when the version is older than the change.
    """
    if path_of(PROTOCOL_VERSION).exists():
        refuse_breaking(snapshot(PROTOCOL_VERSION), present())
    return text_of(present())


def refuse_breaking(old: Schema, new: Schema) -> None:
    if problems := list(breaking(old, new)):
        raise ValueError(
            f"the wire format of protocol {PROTOCOL_VERSION} has changed so that another program "
            f"of the same version would misunderstand it: {'; '.join(problems)}. Only what is new "
            "and has a default may be added. Raise PROTOCOL_VERSION in protocol/messages.py, say "
            "in protocol/versions.py since when each part exists, then `make reference`"
        )


def breaking(old: Schema, new: Schema) -> Iterator[str]:
    """What in `new` a side that knows `old` would misunderstand, one clause each.

    Types that are part of others are compared where they are used: their own names are not sent.
    """
    used = set(_refs(list(old.values())))
    for name in (each for each in old if each not in used):
        if name in new:
            yield from _Comparison(old, new).problems(name, old[name], new[name])
        else:
            yield f"{name} is gone"


def _refs(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        each = cast("Schema", schema)
        if "$ref" in each:
            yield _name_in(each["$ref"])
        yield from _refs(list(each.values()))
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from _refs(part)


def _name_in(ref: str) -> str:
    return ref.rpartition("/")[2]


class _Comparison:
    """Two schemas, compared at one place after another."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new

    def problems(self, at: str, was: Any, now: Any) -> Iterator[str]:
        """`at`: where this is, for people."""
        if isinstance(was, dict) and isinstance(now, dict):
            yield from self._objects(at, cast("Schema", was), cast("Schema", now))
        elif isinstance(was, list) and isinstance(now, list):
            pairs = list(zip(cast("list[Any]", was), cast("list[Any]", now), strict=False))
            if len(cast("list[Any]", was)) != len(cast("list[Any]", now)):
                yield f"{at} has changed"
            else:
                for before, after in pairs:
                    yield from self.problems(at, before, after)
        elif was != now:
            yield f"{at} has changed"

    def _objects(self, at: str, was: Schema, now: Schema) -> Iterator[str]:
        was, now = _resolved(self._old, was), _resolved(self._new, now)
        rest = [set(each) - {"properties", "required"} for each in (was, now)]
        if rest[0] != rest[1]:
            yield f"{at} has changed"
            return
        for key in sorted(rest[0]):
            yield from self.problems(at, was[key], now[key])
        yield from self._fields(at, was, now)

    def _fields(self, at: str, was: Schema, now: Schema) -> Iterator[str]:
        before, after = was.get("properties", {}), now.get("properties", {})
        needed = [frozenset(each.get("required", ())) for each in (was, now)]
        for field in sorted({*before, *after}):
            if field not in after:
                yield f"{at}.{field} is gone"
            elif field not in before:
                if field in needed[1]:
                    yield f"{at}.{field} is new and has no default"
            elif (field in needed[0]) != (field in needed[1]):
                yield f"{at}.{field} is required on one side only"
            else:
                yield from self.problems(f"{at}.{field}", before[field], after[field])


def _resolved(types: Schema, schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**types[_name_in(schema["$ref"])], **rest}


def newer_fields(old: Schema, new: Schema) -> Iterator[str]:
    """The fields of types that both have which only `new` has, as "Type.field"."""
    for name, now in new.items():
        if name in old:
            was = old[name].get("properties", {})
            yield from (
                f"{name}.{field}" for field in now.get("properties", {}) if field not in was
            )
