"""Texts that come from anywhere, and have to fit into a store, a message and a line."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.model.text import SHOWN_MAX, Text, hint, legible, nearest, shortened, storing_flaw
from tests.examples import examples


class Told(BaseModel):
    error: Text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain ä 𝄞", "plain ä 𝄞"),
        ("a\0b", "ab"),
        (os.fsdecode(b"name\xe9.csv"), r"name\xe9.csv"),
        ("\ud800 and \0\udfff", r"\ud800 and \udfff"),
    ],
)
def test_what_a_worker_tells_always_fits_into_a_message(text: str, kept: str) -> None:
    told = Told(error=text)

    assert told.error == kept
    assert Told.model_validate_json(told.model_dump_json()) == told
    assert storing_flaw(told.error) is None


def test_a_flaw_is_named() -> None:
    assert storing_flaw("a\0b") == "a NUL character"
    assert storing_flaw("a\udc80b") == "half of a surrogate pair"
    assert storing_flaw("𝄞") is None
    assert legible("ä") == "ä"


def test_what_is_no_text_is_still_refused() -> None:
    with pytest.raises(ValueError, match="should be a valid string"):
        Told.model_validate({"error": 5})


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("short", 10, "short"),
        ("  padded  ", 6, "padded"),
        ("One sentence. And another one", 20, "One sentence. …"),
        ("a line\nand another line", 16, "a line …"),
        ("several words without an end", 16, "several words …"),
        ("A. Then many words that go on", 20, "A. Then many words …"),
        ("x" * 50, 10, "x" * 8 + " …"),
        ("Error: " + "x" * 50, 40, "Error: " + "x" * 31 + " …"),
        ("file:/a.b/c.d e", 12, "file:/a.b/ …"),
    ],
)
def test_a_text_ends_with_a_sentence_or_else_a_word(text: str, most: int, expected: str) -> None:
    assert shortened(text, most) == expected


@examples()
@given(st.text(alphabet="ab .\n;", max_size=80), st.integers(5, 60))
def test_a_shortened_text_is_a_beginning_that_is_short_enough(text: str, most: int) -> None:
    short = shortened(text, most)

    assert len(short) <= most
    assert text.strip().startswith(short.removesuffix(" …").rstrip())


@pytest.mark.parametrize(
    ("typed", "meant"), [("row.nun", "row.num"), ("SCHEMA", "schema"), ("warehouse", None)]
)
def test_the_name_that_was_probably_meant_is_found_whatever_its_case(
    typed: str, meant: str | None
) -> None:
    assert nearest(typed, ["row.num", "schema"]) == meant


def test_a_hint_names_what_is_near_or_else_what_there_is() -> None:
    assert hint("sceham", ["row.num", "schema"], noun="options") == "did you mean 'schema'?"
    assert hint("x", ["row.num", "schema"], noun="options") == "known options: row.num, schema"
    assert hint("x", [], noun="options") == "there are no options"


def test_a_hint_lists_no_more_names_than_can_be_read() -> None:
    names = [f"option-{number:02}" for number in range(SHOWN_MAX + 3)]

    listed = hint("?", names, noun="options")

    assert listed.endswith(f", {names[SHOWN_MAX - 1]} and 3 more")
