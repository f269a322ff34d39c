"""Values that fit a JSON schema, and why one does not: as far as pydantic's schemas go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from tools.wire_schema import Schema

VARIANTS = 12  # enough for each alternative of any type of ours to be chosen once
DEPTH_MAX = 12
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


class Types:
    """The types of one snapshot, by name."""

    def __init__(self, types: Schema) -> None:
        self._types = types

    def values(self, name: str) -> Iterator[dict[str, Any]]:
        """Objects of this type: the least, and several in which all fields are set."""
        schema = self._types[name]
        yield self._value({**schema, "properties": self._required(schema)}, 0, 0)
        for variant in range(VARIANTS):
            yield self._value(schema, variant, 0)

    def _required(self, schema: Schema) -> Schema:
        return {name: schema["properties"][name] for name in schema.get("required", ())}

    def _value(self, schema: Schema, variant: int, depth: int) -> Any:
        """`variant`: which of several alternatives."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if choices := schema.get("enum"):
            return choices[variant % len(choices)]
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return self._value(choices[variant % len(choices)], variant, depth)
        if schema.get("type") == "object":
            return self._object(schema, variant, depth)
        if schema.get("type") == "array":
            return self._array(schema, variant, depth)
        return self._plain(schema, variant)

    def _plain(self, schema: Schema, variant: int) -> Any:
        match schema.get("type"):
            case "integer" | "number":
                return schema.get("minimum", 0) + variant
            case "boolean":
                return variant % 2 == 0
            case "null":
                return None
            case _:
                return f"text {variant}"

    def _object(self, schema: Schema, variant: int, depth: int) -> dict[str, Any]:
        made = {
            name: self._value(each, variant, depth + 1)
            for name, each in schema.get("properties", {}).items()
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and depth < DEPTH_MAX:
            names = schema.get("propertyNames", {})
            name = self._value(names, variant, depth) if names else str(variant)
            made[name] = self._value(cast("Schema", more), variant, depth + 1)
        return made

    def _array(self, schema: Schema, variant: int, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self._value(each, variant, depth + 1) for each in schema["prefixItems"]]
        if depth >= DEPTH_MAX:
            return []
        return [self._value(schema["items"], variant, depth + 1)]

    def _resolved(self, schema: Schema) -> Schema:
        ref = schema.get("$ref")
        return self._types[ref.rpartition("/")[2]] if ref else schema

    def flaws(self, name: str, value: Any) -> list[str]:
        """What is wrong with a value of this type; unknown fields too, which would be ignored."""
        return list(self._flaws(name, self._types[name], value))

    def _flaws(self, at: str, schema: Schema, value: Any) -> Iterator[str]:
        schema = self._resolved(schema)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            found = [list(self._flaws(at, each, value)) for each in choices]
            yield from min(found, key=len)
            return
        if not self._is_of_type(schema, value):
            yield f"{at}: {value!r} is no {schema['type']}"
            return
        if value not in schema.get("enum", [value]) or value != schema.get("const", value):
            yield f"{at}: {value!r} is unknown"
        if isinstance(value, dict) and "type" in schema:
            yield from self._object_flaws(at, schema, cast("dict[str, Any]", value))
        if isinstance(value, list) and "items" in schema:
            for each in cast("list[Any]", value):
                yield from self._flaws(f"{at}[]", schema["items"], each)

    def _is_of_type(self, schema: Schema, value: Any) -> bool:
        expected = _TYPES[schema["type"]] if "type" in schema else object
        is_number = isinstance(value, bool) and schema.get("type") in ("integer", "number")
        return isinstance(value, expected) and not is_number

    def _object_flaws(self, at: str, schema: Schema, value: Mapping[str, Any]) -> Iterator[str]:
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (
            f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value
        )
        for name, each in value.items():
            if name in known:
                yield from self._flaws(f"{at}.{name}", known[name], each)
            elif isinstance(more, dict):
                yield from self._flaws(f"{at}.{name}", cast("Schema", more), each)
            elif more is not True:
                yield f"{at}.{name} is unknown"
