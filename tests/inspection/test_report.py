"""What an inspection says of a table, and of all of them together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.inspection.report import (
    SIZE_EDGES_BYTES,
    Unread,
    as_json,
    inspect_table,
    snapshots_of,
)
from headrace.inspection.survey import Redactor, way_out
from headrace.logs import REDACTED
from tests.inspection.samples import MIB, NOW_MS, metadata_of, read_table, report, table

PASSWORD = "s3cret!x"


def test_a_table_of_many_small_files_tells_what_optimizing_would_make_of_it() -> None:
    found = table(small=40, full=2, partitions=3)

    assert (found.files.files, found.small.files, found.partitions) == (126, 120, 3)
    assert (found.type, found.partitions_due) == ("MINOR", 3)
    assert (found.saving.files_before, found.saving.files_after) == (120, 3)
    assert found.saving.bytes_rewritten == 2 * 120 * MIB
    assert found.scan_score < found.score_after
    assert found.why == "120 fragments"


def test_a_healthy_table_has_nothing_to_gain() -> None:
    found = table(full=5)

    assert (found.type, found.saving.files_saved, found.saving.spared_bytes) == (None, 0, 0)
    assert (found.scan_score, found.score_after, found.why) == (100, 100, "")
    assert found.most_in_need == ()


def test_a_table_without_files_is_healthy() -> None:
    found = table()

    assert (found.files.files, found.scan_score, found.amoro_score) == (0, 100, 100)
    assert found.deletes.dangling == 0


def test_a_table_that_is_not_to_be_optimized_is_told_what_it_misses() -> None:
    found = table(small=40, properties={"self-optimizing.enabled": "false"})

    assert not found.enabled
    assert found.saving.files_saved == 39


def test_files_are_counted_by_size_and_by_their_own_tables_target() -> None:
    plain = table(small=3, full=2)
    tiny = table(small=3, full=2, properties={"self-optimizing.target-size": str(MIB)})
    small, full = SIZE_EDGES_BYTES.index(MIB), SIZE_EDGES_BYTES.index(128 * MIB)

    assert (plain.sizes[small].fragments, plain.sizes[full].reached) == (3, 2)
    assert (tiny.sizes[small].fragments, tiny.sizes[small].reached) == (0, 3)
    assert sum(each.fragments + each.undersized + each.reached for each in plain.sizes) == 5


def test_a_file_larger_than_every_edge_is_in_the_last_bar() -> None:
    read = read_table(full=1)
    huge = replace(read.files.files[0], bytes=SIZE_EDGES_BYTES[-1] + 1)

    found = inspect_table(replace(read, files=replace(read.files, files=[huge])), now_ms=NOW_MS)

    assert found.sizes[-1].reached == 1


def test_deletes_that_no_file_is_under_are_told_as_dangling() -> None:
    found = table(small=4, deletes=1, summary={"total-delete-files": "10"})

    assert (found.deletes.position, found.deletes.files, found.deletes.dangling) == (4, 4, 6)
    assert found.saving.deletes_removed == 4


def test_dangling_deletes_are_unknown_when_the_snapshot_does_not_tell() -> None:
    assert table(small=4, deletes=1, summary={}).deletes.dangling is None
    moved_on = replace(read_table(small=4), metadata={"format-version": 2, "snapshots": []})
    assert inspect_table(moved_on, now_ms=NOW_MS).deletes.dangling is None


def test_snapshots_are_counted_by_their_age() -> None:
    found = snapshots_of(metadata_of({}, (400, 80, 20, 3, 3, 0)), now_ms=NOW_MS)

    assert found.count == 6
    assert list(found.by_age) == [1, 0, 2, 1, 1, 0, 1]
    assert (found.newest_ms, found.oldest_ms) == (NOW_MS, NOW_MS - 400 * 86_400_000)


def test_partitions_most_in_need_come_first_whatever_table_they_are_of() -> None:
    worse, better = table("a.worse", small=200), table("b.better", small=30, partitions=2)

    needs = report(better, worse).partitions_in_need

    assert [(need.table, need.saving.files_before) for need in needs] == [
        ("a.worse", 200),
        ("b.better", 30),
        ("b.better", 30),
    ]


def test_only_what_the_filter_of_a_table_lets_through_counts_as_saved() -> None:
    read = read_table(small=40, partitions=2)
    first = frozenset(file.path for file in read.files.files if file.partition.key == "day=0")

    found = inspect_table(replace(read, filtered=first), now_ms=NOW_MS)

    assert (found.files.files, found.saving.files_before, found.partitions_due) == (80, 40, 1)


def test_a_property_that_can_not_be_read_is_a_flaw_with_the_way_out() -> None:
    found = table(properties={"self-optimizing.target-size": "large"})

    (flaw,) = found.flaws
    assert "self-optimizing.target-size is 'large'" in flaw
    assert "Set it to such a value" in flaw


def test_totals_add_up_what_could_be_read() -> None:
    made = report(
        table("a", small=40, deletes=1, snapshot_days=(9, 0)),
        table("b", full=2),
        unread=[Unread("c", "broken", "mend it")],
    )

    told = made.totals
    assert (told.tables, told.files.files, told.small.files, told.tables_due) == (2, 42, 40, 1)
    assert (told.deletes.files, told.snapshots, told.saving.files_after) == (40, 3, 1)
    assert told.oldest_ms == NOW_MS - 9 * 86_400_000
    assert round(told.small_share, 3) == round(40 / 42, 3)


def test_a_catalog_without_tables_has_totals_as_well() -> None:
    told = report().totals

    assert (told.tables, told.median_score, told.oldest_ms, told.small_share) == (0, None, None, 0)


def test_json_has_every_number_and_what_follows_from_it() -> None:
    told = as_json(report(table(small=40), unread=[Unread("c", "broken", "mend it")]))

    assert told["tables"][0]["saving"]["files_saved"] == 39
    assert told["tables"][0]["most_in_need"][0]["saving"]["benefit"] > 0
    assert told["totals"]["saving"]["files_before"] == 40
    assert told["totals"]["small_share"] == 1.0
    assert told["unread"] == [{"name": "c", "error": "broken", "fix": "mend it"}]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("RuntimeIOException", "JsonParseException"), "metadata is damaged"),
        (("NotFoundException", "FileNotFoundException"), "restore the named file"),
        (("ForbiddenException",), "credentials of one who may"),
        (("RuntimeException", "AccessControlException"), "credentials of one who may"),
        (("TableMissing",), "dropped while"),
        (("NoClassDefFoundError",), "extraClassPath"),
        (("Unheard",), "see whether Spark can read it"),
    ],
)
def test_every_kind_of_error_has_a_way_out(kinds: tuple[str, ...], expected: str) -> None:
    assert expected in way_out(kinds)


@pytest.mark.parametrize(
    "uri",
    [
        "jdbc:postgresql://db:5432/lake?user=me&password=s3cret%21x",
        "jdbc:sqlserver://db;user=me;password=s3cret!x;encrypt=true",
        f"https://me:{PASSWORD}@host/api",
    ],
)
def test_secrets_are_taken_out_of_properties_and_of_what_errors_say(uri: str) -> None:
    redactor = Redactor({"uri": uri, "credential": "id:pass-word", "warehouse": "s3://b/w"})

    assert redactor.properties["credential"] == REDACTED
    assert redactor.properties["warehouse"] == "s3://b/w"
    assert "s3cret" not in redactor.properties["uri"]
    said = redactor.text(f"can't open {uri} with id:pass-word, that is s3cret!x")
    assert "s3cret" not in said
    assert "pass-word" not in said


@pytest.mark.parametrize(
    "uri",
    [
        "jdbc:oracle:thin:scott/tiger@//host:1521/db",
        "jdbc:hive2://host/;user=x;password=tig",  # too short to be looked for in other texts
        "jdbc:sqlserver://host;password={tig;er};encrypt=true",
        "jdbc:mysql://address=(host=h)(user=x)(password=tiger)/db",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=tiger==",
    ],
)
def test_no_way_to_write_a_password_into_a_uri_shows_it(uri: str) -> None:
    assert "tig" not in Redactor({"uri": uri}).properties["uri"]


@pytest.mark.parametrize("name", ["s3.sse.key", "adls.connection-string.acc", "header.Cookie"])
def test_a_property_that_holds_a_key_is_not_shown(name: str) -> None:
    assert Redactor({name: "tiger"}).properties == {name: REDACTED}


def test_a_property_that_is_no_uri_is_shown_as_it_is() -> None:
    assert Redactor({"uri": "http://[half"}).properties == {"uri": "http://[half"}
