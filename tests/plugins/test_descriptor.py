"""What a descriptor says of a plug-in: capabilities that are so, options with types, a digest."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import pytest
from pydantic import JsonValue

from headrace.errors import Refused
from headrace.plugins.catalog import catalog, installed
from headrace.plugins.descriptor import (
    AnyDescriptor,
    Capabilities,
    Descriptor,
    Guarantee,
    JarCoordinates,
)
from headrace.plugins.options import Kind, Option, OptionSet
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import KindTreatment, RowKind
from headrace.plugins.save_modes import DataMode, SchemaMode

OPTIONS = OptionSet((Option("size", Kind.INT, 5), Option("password", Kind.STRING)))


def size_of(options: ResolvedOptions) -> int:
    return options.integer("size")


def toy(**more: Any) -> AnyDescriptor:
    known: dict[str, Any] = {
        "name": "Toy",
        "role": "sink",
        "make": "toy.sink:Toy",
        "options": OPTIONS,
        "read_options": size_of,
    }
    return Descriptor(**{**known, **more})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "a b"}, "is no name of a plug-in"),
        ({"role": "reader"}, "'reader' is no role"),
        ({"make": "toy.sink.Toy"}, "must be package.module:Class"),
        ({"make": "toy:Toy()"}, "must be package.module:Class"),
        ({"changes_flow": size_of}, "changes_flow needs treats_kinds"),
    ],
)
def test_a_descriptor_that_cant_be_used_is_refused_when_it_is_made(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        toy(**wrong)


def test_a_jar_is_named_by_three_coordinates() -> None:
    assert JarCoordinates("org.postgresql:postgresql:42.7.4").sha256 is None
    with pytest.raises(ValueError, match="group:artifact:version"):
        JarCoordinates("postgresql-42.jar")


def test_the_digest_changes_with_what_a_job_can_see_and_with_nothing_else() -> None:
    same = [toy(doc="other words"), toy(version="2"), toy(package="p"), toy(make="toy.other:Toy")]
    other = [
        toy(name="Toy2"),
        toy(role="source"),
        toy(options=OptionSet((Option("size", Kind.INT, 6), Option("password", Kind.STRING)))),
        toy(options=OptionSet((Option("size", Kind.INT, 5),))),
        toy(one_of=(("size",),)),
        toy(capabilities=Capabilities(row_kinds=frozenset(RowKind))),
        toy(capabilities=Capabilities(guarantee=Guarantee.AT_LEAST_ONCE)),
    ]
    assert {each.digest for each in same} == {toy().digest}
    assert len({toy().digest, *(each.digest for each in other)}) == len(other) + 1
    assert len(toy().digest) == 64


def test_the_digests_of_all_plugins_differ() -> None:
    assert len({each.digest for each in installed()}) == len(installed())


# What options that hold blocks are given, by their names.
BLOCKS: dict[str, Any] = {
    "rules": {"row_rules": [{"rule_type": "MAX_ROW", "rule_value": 1}]},
    "columns": [{"src_field": "a", "path": "$.b", "dest_field": "c"}],
    "field_rules": [{"field_name": "a", "rule_type": "NOT_NULL"}],
}


# They go by the names of the tables that they read, and would be wrong where each row has a table.
GO_BY_NAMES = frozenset({"Metadata", "TableFilter", "TableMerge", "TableRename"})


@pytest.mark.parametrize("descriptor", installed(), ids=lambda each: each.title)
def test_capabilities_say_what_the_options_say(descriptor: AnyDescriptor) -> None:
    built: list[str] = []
    for name in ("schema_save_mode", "data_save_mode"):
        if (option := descriptor.options.find(name)) is not None:
            built += cast("Any", option.choices if option.supported is None else option.supported)
    capabilities = descriptor.capabilities

    assert [str(mode) for mode in capabilities.save_modes] == built
    assert set(capabilities.save_modes) <= {*SchemaMode, *DataMode}
    assert (capabilities.guarantee is None) == (descriptor.role == "transform")
    assert bool(capabilities.how) == (descriptor.role != "transform")
    # Each that takes or gives more has tests of its own: test_row_kinds.py, test_console.py …
    more = descriptor.title in {"source FakeSource", "sink Assert", "sink Console", "sink InMemory"}
    assert capabilities.row_kinds == (frozenset(RowKind) if more else {RowKind.INSERT})
    carries = capabilities.treats_kinds is not KindTreatment.REFUSES
    wanted = descriptor.role == "transform" and descriptor.name not in GO_BY_NAMES
    assert carries == wanted, "all others of ours know what to do with kinds"
    assert (descriptor.target_key is not None) == bool(built)


@pytest.mark.parametrize("descriptor", installed(), ids=lambda each: each.title)
def test_typed_options_are_frozen_and_show_no_secret(descriptor: AnyDescriptor) -> None:
    given: dict[str, Any] = {}
    for option in descriptor.options.declared:
        if option.required or option.name in {"url", "password"}:
            given[option.name] = {
                Kind.MAP: {"a": "b"},
                Kind.LIST: ["hush-hush"],
                Kind.JSON: BLOCKS.get(option.name),
            }.get(option.kind, "csv" if option.choices else "hush-hush")
    schema = descriptor.options.find("schema")
    if schema is not None and schema.kind is Kind.SCHEMA:
        given["schema"] = {"fields": {"id": "int"}}
    typed = descriptor.typed_options(given)

    assert is_dataclass(typed)
    with pytest.raises((AttributeError, TypeError)):
        setattr(typed, fields(typed)[0].name, None)
    if "password" in given:
        assert "hush-hush" not in repr(replace(cast("Any", typed)).database)


@pytest.mark.parametrize(
    ("getter", "value", "said"),
    [
        ("text", 5, "option 'x' must be a text, and is a int"),
        ("integer", True, "option 'x' must be a whole number, and is a bool"),
        ("integer", "5", "option 'x' must be a whole number, and is a str"),
        ("optional_number", "5", "option 'x' must be a number, and is a str"),
        ("flag", "true", "option 'x' must be true or false, and is a str"),
        ("texts", "a", "option 'x' must be a list, and is a str"),
        ("properties", [], "option 'x' must be an object, and is a list"),
        ("text", None, "option 'x' is missing"),
        ("integer", None, "option 'x' is missing"),
    ],
)
def test_a_value_of_another_type_is_refused_without_being_shown(
    getter: str, value: Any, said: str
) -> None:
    with pytest.raises(Refused) as refused:
        getattr(ResolvedOptions({"x": value}), getter)("x")
    assert str(refused.value) == said


def test_what_is_missing_is_empty_where_that_has_a_meaning() -> None:
    options = ResolvedOptions({})

    assert options.optional_text("x") is None
    assert options.texts("x") == ()
    assert dict(options.properties("x")) == {}
    assert options.flag("x") is False
    assert options.schema("x") is None
    assert not options.save_modes().opens


def test_defaults_are_in_the_typed_options() -> None:
    console = catalog().find("sink", "Console")
    assert console is not None
    assert console.typed_options({}).shows is True
    assert console.typed_options({"log.print.data": False}).shows is False


def test_a_number_of_0_is_0_and_not_the_default() -> None:
    fake = catalog().find("source", "FakeSource")
    assert fake is not None
    schema: JsonValue = {"fields": {"id": "int"}}
    starts = [
        fake.typed_options({"schema": schema, **given}).auto_increment_start
        for given in ({}, {"auto.increment.start": 0})
    ]
    assert starts == [1, 0]
