"""The file sink with Spark: formats, names, partitions, and what readers see of what is staged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from tests.spark.connectors.test_fake import ALL_TYPES
from tests.spark.connectors.test_iceberg_sink import fake
from tests.spark.folder import lines, numbers, query, sink, source, told, write, written
from tests.spark.lake import some
from tests.spark.settings import at

FORMATS = ["text", "csv", "json", "parquet", "orc"]
# Keys of a JSON object are texts, and Spark reads them as nothing else.
NO_JSON = {"c_flags"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.mark.parametrize("form", FORMATS)
def test_every_type_comes_back_from_every_format(
    session: SparkSession, folder: Path, form: str
) -> None:
    fields = {name: of for name, of in ALL_TYPES.items() if form != "json" or name not in NO_JSON}
    frame = fake(session, 20, fields)
    to = sink(folder, file_format_type=form)
    staged = to.stage(session, frame, at())
    done = to.commit(session, staged.handle, at())

    assert staged.rows == done.facts["rows"] == 20
    back = source(folder, file_format_type=form, schema={"fields": fields})
    found = back.read(session, some(back.plan(session, None)))
    assert found.dtypes == frame.dtypes
    assert told(found) == told(frame)


def test_readers_do_not_see_what_is_staged(session: SparkSession, folder: Path) -> None:
    to = sink(folder, file_format_type="parquet")
    write(session, to, numbers(session, 5))
    staged = to.stage(session, numbers(session, 7, first=100), at(2))

    assert session.read.parquet(str(folder)).count() == 5
    to.commit(session, staged.handle, at(2))
    assert session.read.parquet(str(folder)).count() == 12


def test_after_the_sweep_only_data_and_manifests_are_left(
    session: SparkSession, folder: Path
) -> None:
    to = sink(folder, file_format_type="json")
    to.stage(session, numbers(session, 3), at(1, execution="dead"))
    write(session, to, numbers(session, 3))

    assert [file.name for file in (folder / "_headrace").rglob("*") if file.is_file()] == ["1.json"]
    assert len(lines(folder)) == 3


def test_rows_are_parted_into_folders(session: SparkSession, folder: Path) -> None:
    to = sink(folder, file_format_type="json", have_partition=True, partition_by=["name"])
    write(session, to, numbers(session, 3))

    assert {name.split("/")[0] for name in written(folder)} == {"name=0", "name=1", "name=2"}
    assert lines(folder) == ['{"id":0}', '{"id":1}', '{"id":2}']
    assert session.read.json(str(folder)).count() == 3


def test_partition_columns_may_stay_in_the_files(session: SparkSession, folder: Path) -> None:
    to = sink(
        folder,
        file_format_type="json",
        have_partition=True,
        partition_by=["name"],
        is_partition_field_write_in_file=True,
        partition_dir_expression="of/${v0}",
    )
    write(session, to, numbers(session, 2))

    assert {name.rpartition("/")[0] for name in written(folder)} == {"of/0", "of/1"}
    assert lines(folder) == ['{"id":0,"name":"0"}', '{"id":1,"name":"1"}']


def test_files_have_the_names_that_were_asked_for(session: SparkSession, folder: Path) -> None:
    to = sink(
        folder,
        custom_filename=True,
        file_name_expression="mine_${now}",
        filename_time_format="yyyy",
        filename_extension="dat",
        single_file_mode=True,
    )
    write(session, to, numbers(session, 3))
    write(session, to, numbers(session, 3), epoch=2)

    names = written(folder)
    assert len(set(names)) == 2
    assert all(name.startswith("mine_20") and name.endswith(".dat") for name in names)


def test_a_file_holds_no_more_rows_than_its_batch(session: SparkSession, folder: Path) -> None:
    write(session, sink(folder, batch_size=4), numbers(session, 20))
    assert len(written(folder)) == 6  # two partitions of ten rows
    assert len(lines(folder)) == 20


@pytest.mark.parametrize("form", ["text", "csv"])
def test_every_file_begins_with_the_header(session: SparkSession, folder: Path, form: str) -> None:
    to = sink(
        folder,
        file_format_type=form,
        enable_header_write=True,
        batch_size=4,
        field_delimiter=";",
        sink_columns=["name", "id"],
    )
    write(session, to, numbers(session, 20))

    texts = [(folder / name).read_text() for name in written(folder)]
    assert len(texts) == 6
    assert all(text.startswith("name;id\n") and text.count("name") == 1 for text in texts)
    assert len(lines(folder)) == 26


def test_text_is_written_as_seatunnel_writes_it(session: SparkSession, folder: Path) -> None:
    frame = query(
        session,
        "SELECT 1 AS a, array(1, 2) AS b, map('k', 'v') AS c, CAST(NULL AS INT) AS d, "
        "TIMESTAMP_NTZ '2026-01-02 03:04:05' AS e",
    )
    write(session, sink(folder, file_format_type="text"), frame)
    fields = ["1", "1\u00022", "k\u0003v", "", "2026-01-02 03:04:05"]
    assert [(folder / name).read_text() for name in written(folder)] == [
        "\u0001".join(fields) + "\n"
    ]


@pytest.mark.parametrize("form", ["text", "csv", "json"])
def test_lines_are_encoded_and_compressed(session: SparkSession, folder: Path, form: str) -> None:
    options = {"file_format_type": form, "encoding": "gbk"}
    frame = query(session, "SELECT '中文' AS word")
    write(session, sink(folder, **options), frame)

    assert any("中文" in line for line in lines(folder, encoding="gbk"))
    back = source(folder, schema={"fields": {"word": "string"}}, **options)
    assert told(back.read(session, some(back.plan(session, None)))) == ["Row(中文)"]

    zipped = folder.parent / "zipped"
    write(session, sink(zipped, file_format_type=form, compress_codec="gzip"), frame)
    assert all(name.endswith(".gz") for name in written(zipped))
    back = source(zipped, file_format_type=form, schema={"fields": {"word": "string"}})
    assert told(back.read(session, some(back.plan(session, None)))) == ["Row(中文)"]


def test_an_epoch_without_rows_leaves_no_file_unless_one_is_wanted(
    session: SparkSession, folder: Path
) -> None:
    empty = numbers(session, 5).where("id < 0")
    for number, form in enumerate(FORMATS, start=1):
        write(session, sink(folder, file_format_type=form), empty, epoch=number)
    assert written(folder) == []

    write(session, sink(folder, create_empty_file_when_no_data=True), empty, epoch=9)
    assert len(written(folder)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"file_format_type": "orc", "compress_codec": "gzip"}, "orc can't be compressed"),
        ({"have_partition": True}, "needs the option 'partition_by'"),
        ({"file_format_type": "parquet", "encoding": "gbk"}, "parquet has no 'encoding'"),
        (
            {
                "file_format_type": "text",
                "enable_header_write": True,
                "have_partition": True,
                "partition_by": ["a"],
            },
            "no header yet",
        ),
    ],
)
def test_options_that_can_not_be_met_together_are_refused(
    folder: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        sink(folder, **options)


def test_a_column_that_is_not_there_is_refused_by_name(session: SparkSession, folder: Path) -> None:
    with pytest.raises(Refused, match="no column 'age'; there are id, name"):
        sink(folder, sink_columns=["age"]).stage(session, numbers(session, 1), at())
