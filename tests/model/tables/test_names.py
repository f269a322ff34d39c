"""A table is called by one text, and no two by the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.ids import identifier_of
from tests.examples import examples

parts = st.text(alphabet="ab.`-é ", max_size=4)
tables = st.tuples(parts, st.lists(parts, max_size=2).map(tuple), parts)


def test_a_part_with_odd_characters_is_backquoted() -> None:
    assert identifier_of("lake", ("sales", "eu-1"), "orders_2") == "lake.sales.eu-1.orders_2"
    assert identifier_of("lake", ("a.b",), "my table") == "lake.`a.b`.`my table`"
    assert identifier_of("lake", (), "b`c") == "lake.`b``c`"


@examples()
@given(one=tables, other=tables)
def test_two_tables_have_two_identifiers(
    one: tuple[str, tuple[str, ...], str], other: tuple[str, tuple[str, ...], str]
) -> None:
    assert (identifier_of(*one) == identifier_of(*other)) == (one == other)
