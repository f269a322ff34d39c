"""HOCON as SeaTunnel writes it: values, keys, merging, places, and what can't be understood."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from headrace.jobfile.hocon import read_document
from headrace.plugins.syntax_tree import Array, FilePlace, Object, Problem, Scalar, to_json
from tests.examples import examples


def value_of(text: str) -> JsonValue:
    return to_json(read_document(f"x = {text}").root.members["x"])


def all_of(text: str) -> JsonValue:
    return to_json(read_document(text).root)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("1.5e3", 1500.0),
        ("1e+5", 100000.0),
        ("007", "007"),
        ("true", True),
        ("null", None),
        ("10s", "10s"),
        ("a b  c", "a b  c"),
        ("local[2]", "local[2]"),
        ("local[*]", "local[*]"),
        ("a/b", "a/b"),
        ("1 + 1", "1 + 1"),
        ('"a" b "c"', "a b c"),
        ('"a\\tb\\u00e9"', "a\tbé"),
        ('"""a\n"b"\\n"""', 'a\n"b"\\n'),
        ('"""a""""', 'a"'),
        ('""', ""),
        ("[1, 2\n 3 # three\n, 4,\n]", [1, 2, 3, 4]),
        ("[1] [2]", [1, 2]),
        ("{a = 1} {b = 2}", {"a": 1, "b": 2}),
        ("\n\n 5", 5),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("1e999", "1e999"),
        ('include "x"', "include x"),
    ],
)
def test_a_value_is_read_as_it_is_written(written: str, value: JsonValue) -> None:
    assert value_of(written) == value
    assert type(value_of(written)) is type(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", {}),
        ("# nothing", {}),
        ("{}", {}),
        ("{ a = 1 }\n", {"a": 1}),
        ("a = 1, b : 2\nc { d = 3 }", {"a": 1, "b": 2, "c": {"d": 3}}),
        ("a.b.c = 1\na.b { d = 2 }", {"a": {"b": {"c": 1, "d": 2}}}),
        ('a."b.c".d = 1', {"a": {"b.c": {"d": 1}}}),
        ("a-b.c_d = 1", {"a-b": {"c_d": 1}}),
        ("a { b = 1 }\na { b = 2, c = 3 }", {"a": {"b": 2, "c": 3}}),
        ("a = 1\na = { b = 2 }", {"a": {"b": 2}}),
        ("a = [1]\na += 2", {"a": [1, 2]}),
        ("a += 2", {"a": [2]}),
        ("a\n=\n1 // one", {"a": 1}),
        ("a\n{ b = 1 }", {"a": {"b": 1}}),
        ('{"a": [1, {"b": null}], "c.d": true}', {"a": [1, {"b": None}], "c.d": True}),
        ("a b = 1", {"a b": 1}),
        ("a = 1\r\nb = 2\r\n", {"a": 1, "b": 2}),
        ("including = 1", {"including": 1}),
    ],
)
def test_a_document_is_read_as_hocon_says(written: str, value: JsonValue) -> None:
    assert all_of(written) == value


def test_plugins_of_the_same_name_stay_apart_and_in_order() -> None:
    document = read_document(
        "source { Fake { row.num = 1 }\n Fake { row.num = 2 } }\n"
        "source { Other {} }\n"
        "sink = [{ plugin_name = Console, a = 1 }]\n"
        "transform {}\n"
        "source.Last { x = 1 }"
    )

    assert [(p.role, p.name, to_json(p.options)) for p in document.plugins] == [
        ("source", "Fake", {"row": {"num": 1}}),
        ("source", "Fake", {"row": {"num": 2}}),
        ("source", "Other", {}),
        ("sink", "Console", {"a": 1}),
        ("source", "Last", {"x": 1}),
    ]


def test_below_the_root_source_is_a_key_like_any_other() -> None:
    assert all_of("env { source { a = 1 }\n source { b = 2 } }") == {
        "env": {"source": {"a": 1, "b": 2}}
    }


def test_every_key_and_value_knows_its_place() -> None:
    root = read_document('# one\na = [1,\n  {b = "x"}]\n  c { d = 4 }').root

    items = root.members["a"]
    assert isinstance(items, Array)
    inner = items.items[1]
    assert isinstance(inner, Object)
    assert root.keys == {"a": FilePlace(2, 1), "c": FilePlace(4, 3)}
    assert [items.place, items.items[0].place, inner.place] == [(2, 5), (2, 6), (3, 3)]
    assert (inner.keys["b"], inner.members["b"].place) == ((3, 4), (3, 8))


def test_a_number_keeps_its_text() -> None:
    node = read_document("a = 1.10").root.members["a"]

    assert node == Scalar(FilePlace(1, 5), 1.1, "1.10")


NOT_CLOSED = "is never closed: the file ends too early"
NOT_HERE = "was not expected here; "


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a {\n b = 1\n", 1, 3, f"this '{{' {NOT_CLOSED}, in line 3; add '}}' where it is to end"),
        ("a = [1,\n2", 1, 5, f"this '[' {NOT_CLOSED}, in line 2; add ']' where it is to end"),
        ("a =", 1, 4, "the file ends too early: a value is missing"),
        (
            "a = 1\nb = select * from x",
            2,
            12,
            "'*' can't stand in an unquoted value; put the value in double quotes",
        ),
        (
            "a = http://x",
            1,
            9,
            f"':' {NOT_HERE}put the value in double quotes if it belongs to it, "
            "or begin a new line",
        ),
        (
            "a 1\nb = 2",
            2,
            1,
            f"'b' {NOT_HERE}after a key comes '=', ':' or '{{', and the key in line 1 has nothing",
        ),
        ("a = 1 }", 1, 7, f"'}}' {NOT_HERE}a key comes here, or the end of the block"),
        (
            "a = [1 }",
            1,
            8,
            f"'}}' {NOT_HERE}a list goes on with ',' or a new line, or ends with ']'; "
            "what is open here is the '[' of line 1, column 5",
        ),
        ("a = , 1", 1, 5, f"',' {NOT_HERE}a value comes here"),
        ('a = "abc\n', 1, 5, "this string has no end: '\"' is missing on this line"),
        ('a = """abc"', 1, 5, 'this string has no end: \'"""\' is missing'),
        ("a = ${x", 1, 5, "this variable has no end, or no name; write ${name} or ${name:default}"),
        (
            'a = "\\d+"',
            1,
            5,
            "'\\d' is no escape of a quoted string; write '\\\\d', "
            'or put the string in triple quotes: """…"""',
        ),
        ('a = "\\ud800"', 1, 5, "this string has half of a surrogate pair"),
        ('a = "x\\u0000"', 1, 5, "this string has a NUL character"),
        ("a = 1\nb = x\0y", 2, 6, "a NUL character stands here"),
        (
            ".".join("a" * 1200) + " = 1",
            1,
            1,
            "a key has 1200 parts between its dots; at most 64 fit",
        ),
        (
            "x { " + ".".join("a" * 40) + " { " + ".".join("b" * 40) + " = 1 } }",
            1,
            87,
            "nested more than 64 deep; each dot of a key is a level, too",
        ),
        ("a..b = 1", 1, 1, "a key has an empty part; put it in quotes if its dot is no path"),
        ("a = [1] {b = 1}", 1, 9, "a list, an object and a text can't be put side by side"),
        (
            'env { include "other.conf" }',
            1,
            7,
            "include is not supported; write the included text into this file",
        ),
        ("source { Fake = 1 }", 1, 10, "source Fake must be a block: Fake { … }"),
        ("sink = 5", 1, 8, "sink must be a block of plugins, or a list of them"),
        ("sink = [{ a = 1 }]", 1, 9, "a sink in a list must be an object with plugin_name"),
        ("a = " + "[" * 65 + "]" * 65, 1, 5, "nested more than 64 deep"),
    ],
)
def test_what_can_not_be_understood_is_said_with_its_place(
    text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(Problem) as raised:
        read_document(text)

    assert (raised.value.text, raised.value.place) == (said, (line, column))


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def hocon(value: JsonValue, depth: int = 1) -> str:
    """The same value, written the other way: `=`, new lines, and words without quotes."""
    pad = "  " * depth
    match value:
        case dict():
            fields = "".join(
                f"{pad}{quoted(k)} = {hocon(v, depth + 1)} # …\n" for k, v in value.items()
            )
            return f"{{\n{fields}}}"
        case list():
            return "[" + "".join(f"\n{pad}{hocon(item, depth + 1)}" for item in value) + "]"
        case str() if (
            value.isalpha() and value.isascii() and value not in {"true", "false", "null"}
        ):
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)


def quoted(key: str) -> str:
    return key if key.isalnum() and key.isascii() and key != "include" else json.dumps(key)


@given(value=VALUES)
@examples(150)
def test_any_value_written_as_json_or_hocon_is_read_back(value: JsonValue) -> None:
    for written in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, indent=1),
        hocon(value),
    ):
        read = value_of(written)
        assert read == value
        assert json.dumps(read) == json.dumps(value)
