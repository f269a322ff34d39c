"""Names of Iceberg tables: what would leave its folder, or its identifier, is refused."""

from __future__ import annotations

import pytest

from tests.jobfile.samples import problem, read

EMPTY = "it has an empty part; write NAME, or NAME.NAME"


def lake(option: str, value: str) -> str:
    table = "" if option == "table" else "table = t\n"
    return (
        "source { FakeSource { schema { fields { id = int } } } }\n"
        f'sink {{ Iceberg {{\n{option} = "{value}"\n{table}}}}}\n'
    )


@pytest.mark.parametrize("option", ["table", "namespace", "catalog_name"])
@pytest.mark.parametrize(
    ("written", "value", "said"),
    [
        ("", "", EMPTY),
        ("..", "..", EMPTY),
        ("a..b", "a..b", EMPTY),
        ("a.", "a.", EMPTY),
        ("a/b", "a/b", "'/' can't be part of a name"),
        ("a\\\\b", "a\\b", "'\\\\' can't be part of a name"),
        ("a`b", "a`b", "'`' can't be part of a name"),
        ("a'b", "a'b", "\"'\" can't be part of a name"),
        ("a\\nb", "a\nb", "'\\n' can't be part of a name"),
    ],
)
def test_a_name_that_is_no_name_is_refused(
    option: str, written: str, value: str, said: str
) -> None:
    assert problem(lake(option, written)) == (
        f"job.conf:3:{len(option) + 4}: option {option!r} of sink Iceberg can't be {value!r}: "
        f"{said}"
    )


@pytest.mark.parametrize("name", ["orders", "shop.orders", "ordres_été", "${table_name}"])
def test_a_name_with_letters_dots_and_placeholders_is_taken(name: str) -> None:
    assert read(lake("table", name)).pipelines[0].sinks[0].options["table"] == name
