"""The types that texts are found to have, and the block that shows them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.columns import spark_schema
from headrace.connectors.files.inference import schema_text, typed_columns
from headrace.plugins.schema import parse_schema


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", ""], "bigint"),
        (["1", "2.5", "1e3"], "double"),
        (["9223372036854775808"], "double"),
        (["007", "1"], "string"),
        (["True", "false"], "boolean"),
        (["2026-01-02"], "date"),
        (["2026-13-02"], "string"),
        (["2026-01-02 03:04:05", "2026-01-02T03:04:05.5"], "timestamp"),
        (["2026-01-02T03:04:05+01:00"], "string"),
        (["02.01.2026"], "string"),
        (["", None], "string"),
        ([["1", "2"]], "string"),
        (["1", "\\N"], "bigint"),
    ],
)
def test_a_column_has_the_type_of_all_its_texts(texts: list[str], kind: str) -> None:
    (column,) = typed_columns(["c"], [[text] for text in texts], null="\\N")
    assert column == {"name": "c", "type": kind}


def test_the_block_that_is_shown_can_be_read_back() -> None:
    columns: list[Any] = [
        {"name": "id", "type": "bigint"},
        {"name": "odd name", "type": "array<string>"},
        {"name": "row", "type": {"a": "bigint", "b": "array<bigint>"}},
        {"name": "rows", "type": 'array<{"a" = bigint, "b" = array<double>}>'},
    ]
    schema = spark_schema(parse_schema({"columns": columns}))
    assert schema.simpleString() == (
        "struct<id:bigint,odd name:array<string>,row:struct<a:bigint,b:array<bigint>>,"
        "rows:array<struct<a:bigint,b:array<double>>>>"
    )
    assert schema_text(columns[:3]) == (
        'schema = { fields { id = bigint, "odd name" = "array<string>", '
        'row = { a = bigint, b = "array<bigint>" } } }'
    )
