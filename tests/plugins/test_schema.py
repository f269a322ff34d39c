"""The schema block: columns, keys, and every type SeaTunnel has."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from headrace.errors import Refused
from headrace.plugins.schema import (
    ArrayType,
    ColumnSpec,
    ColumnType,
    ConstraintKey,
    DecimalType,
    MapType,
    PlainType,
    PrimaryKey,
    RowType,
    TableSchema,
    VectorType,
    parse_schema,
)
from tests.jobfile.samples import problem

STRING, INT = PlainType("string"), PlainType("int")


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        *(
            (name, PlainType(name))
            for name in ["string", "boolean", "tinyint", "smallint", "int", "bigint"]
        ),
        *((name, PlainType(name)) for name in ["float", "double", "null", "bytes", "date", "time"]),
        ("TIMESTAMP", PlainType("timestamp")),
        ("timestamp_tz", PlainType("timestamp_tz")),
        (None, PlainType("null")),
        ("decimal(30, 8)", DecimalType(30, 8)),
        ("Decimal( 38 )", DecimalType(38, 0)),
        ("array<int>", ArrayType(INT)),
        ("map<string, array<int>>", MapType(STRING, ArrayType(INT))),
        (
            "map<string, map<string, decimal(3,1)>>",
            MapType(STRING, MapType(STRING, DecimalType(3, 1))),
        ),
        (
            {"a": "int", "b": {"c": "string"}},
            RowType((("a", INT), ("b", RowType((("c", STRING),))))),
        ),
        (
            '{a = int, "b" : "map<string, int>", c = {d = int}}',
            RowType((("a", INT), ("b", MapType(STRING, INT)), ("c", RowType((("d", INT),))))),
        ),
        ("float_vector", VectorType("float_vector")),
        ("sparse_float_vector", VectorType("sparse_float_vector")),
    ],
)
def test_every_type_is_understood(written: JsonValue, type_: ColumnType) -> None:
    schema = parse_schema({"fields": {"x": written}})

    assert schema.columns == (ColumnSpec("x", type_),)


def test_columns_and_keys_are_read() -> None:
    schema = parse_schema(
        {
            "table": "db.t",
            "comment": "c",
            "columns": [
                {"name": "id", "type": "bigint", "nullable": False, "comment": "key"},
                {"name": "n", "type": "string", "columnLength": 7, "defaultValue": "x"},
                {"name": "d", "type": "decimal(4,2)", "columnLength": 0, "columnScale": "2"},
            ],
            "primaryKey": {"name": "pk", "columnNames": ["id"]},
            "constraintKeys": [
                {
                    "constraintName": "u",
                    "constraintType": "unique_key",
                    "constraintColumns": [{"columnName": "n", "sortType": "ASC"}],
                }
            ],
        }
    )

    assert schema == TableSchema(
        table="db.t",
        comment="c",
        columns=(
            ColumnSpec("id", PlainType("bigint"), nullable=False, comment="key"),
            ColumnSpec("n", STRING, length=7, default="x"),
            ColumnSpec("d", DecimalType(4, 2), scale=2),
        ),
        primary_key=PrimaryKey("pk", ("id",)),
        constraint_keys=(ConstraintKey("u", "UNIQUE_KEY", (("n", "ASC"),)),),
    )


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (5, "schema must be an object, and is 5"),
        ({}, "a schema needs 'fields' or 'columns', and not both"),
        ({"fields": {}}, "a schema must have at least one column"),
        ({"fields": {"x": "itn"}}, "unknown type 'itn'; did you mean 'int'?"),
        ({"fields": {"x": 5}}, "a type must be a name or an object, and is 5"),
        ({"fields": {"x": {}}}, "a row type must have at least one field"),
        (
            {"fields": {"x": "decimal(40, 2)"}},
            "'decimal(40, 2)' is no decimal: its precision must be 1 to 38, "
            "its scale 0 to its precision",
        ),
        ({"fields": {"x": "map<int>"}}, "'map<int>' is no type; write map<K, V>"),
        ({"fields": {"x": "{a int}"}}, "'{a int}' is no row type; write {name = type, …}"),
        (
            {"fields": {"x": "array<" * 33 + "int" + ">" * 33}},
            "a type may be nested 32 deep at most",
        ),
        ({"field": {"x": "int"}}, "unknown key 'field' of schema; did you mean 'fields'?"),
        ({"columns": {"x": "int"}}, "columns must be a list, and is an object"),
        ({"columns": [{"name": "x"}]}, "a column must have 'type'"),
        (
            {"columns": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}]},
            "column 'x' is declared twice",
        ),
        (
            {"columns": [{"name": "x", "type": "int", "columnLength": "long"}]},
            "a whole number was expected here, and not 'long'",
        ),
        (
            {"columns": [{"name": "x", "type": "int", "nullable": "no"}]},
            "true or false was expected here, and not 'no'",
        ),
        (
            {"fields": {"id": "int"}, "primaryKey": {"columnNames": ["idd"]}},
            "unknown column 'idd'; did you mean 'id'?",
        ),
        (
            {"fields": {"id": "int"}, "primaryKey": {"name": "pk"}},
            "primaryKey must have 'columnNames'",
        ),
        (
            {"fields": {"id": "int"}, "constraintKeys": [{"constraintName": "u"}]},
            "a constraint key must have 'constraintType'",
        ),
    ],
)
def test_a_schema_that_can_not_be_is_refused(block: JsonValue, said: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_schema(block)

    assert str(refused.value) == f"schema: {said}"


def test_a_schema_is_checked_when_the_job_file_is_read_and_the_place_is_told() -> None:
    block = "schema { fields {\n  id = int\n  n = strinx } }"
    text = f"source {{ FakeSource {{\n {block} }} }}\nsink {{ Console {{}} }}"

    assert problem(text) == "job.conf:4:7: unknown type 'strinx'; did you mean 'string'?"


def test_a_vector_column_is_refused_by_a_plugin_that_has_none() -> None:
    text = "source { FakeSource {\n schema { fields { v = float_vector } } } }\nsink { Console {} }"

    assert problem(text) == (
        "job.conf:2:9: column 'v' in option 'schema' of source FakeSource is a vector, "
        "which is not built yet"
    )
