"""SeaTunnel's own jobs of files run unchanged, on its own files, laid out as its tests do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import BadJobFile
from headrace.jobfile.reader import read_job
from tests.conformance import JOBS, job_files
from tests.connectors.files.test_records import tarred, zipped
from tests.spark.test_seatunnel_jobs import run

FIXTURES = JOBS.parent / "fixtures"
LOCAL = "connector-file-local-e2e"
RUN = (
    f"{LOCAL}/binary/local_file_binary_to_local_file_binary.conf",
    f"{LOCAL}/excel/fake_to_local_excel.conf",
    f"{LOCAL}/excel/local_excel_projection_to_assert.conf",
    f"{LOCAL}/excel/local_excel_to_assert.conf",
    f"{LOCAL}/json/local_file_json_lzo_to_console.conf",
    f"{LOCAL}/json/local_file_json_multi_zip_to_assert.conf",
    f"{LOCAL}/json/local_file_json_to_assert.conf",
    f"{LOCAL}/json/local_file_json_to_console_with_encoding.conf",
    f"{LOCAL}/json/local_file_json_zip_to_assert.conf",
    f"{LOCAL}/orc/fake_to_local_file_orc.conf",
    f"{LOCAL}/orc/local_file_orc_to_assert_with_time_and_cast.conf",
    f"{LOCAL}/parquet/local_file_parquet_to_assert.conf",
    f"{LOCAL}/text/fake_to_local_file_text.conf",
    f"{LOCAL}/text/local_file_delimiter_assert.conf",
    f"{LOCAL}/text/local_file_multi_tar_gz_text_to_assert.conf",
    f"{LOCAL}/text/local_file_multi_zip_text_to_assert.conf",
    f"{LOCAL}/text/local_file_text_skip_headers.conf",
    f"{LOCAL}/text/local_file_text_to_assert.conf",
    f"{LOCAL}/text/local_file_text_to_console_with_encoding.conf",
    f"{LOCAL}/text/local_file_time_format_assert.conf",
    f"{LOCAL}/xml/local_file_xml_to_assert.conf",
    f"{LOCAL}/xml/local_file_zip_xml_to_assert.conf",
)
REFUSED = (
    f"{LOCAL}/orc/local_file_orc_to_assert_with_multipletable.conf",
    f"{LOCAL}/text/local_file_text_to_assert_with_multipletable.conf",
)


def lay_out(root: Path) -> None:
    """As the README beside the jobs says; archives are made here."""
    partition = "name=tyrantlucifer/hobby=coding"
    for kind in ("json", "text", "excel", "orc", "parquet"):
        _put(root, f"{kind}/{partition}", *sorted((FIXTURES / kind).glob("e2e.*")))
    _put(root, "encoding/json", FIXTURES / "json" / "e2e_gbk.json")
    _put(root, "encoding/text", FIXTURES / "text" / "e2e_gbk.txt")
    _put(root, "text_delimiter", FIXTURES / "text" / "e2e_delimiter.txt")
    _put(root, "text_time_format", FIXTURES / "text" / "e2e_time_format.txt")
    _put(root, "orc_cast", FIXTURES / "orc" / "orc_for_cast.orc")
    _put(root, "xml", FIXTURES / "xml" / "e2e.xml")
    _put(root, "binary", FIXTURES / "binary" / "cat.png")
    for kind, name in (("json", "json/e2e.json"), ("txt", "text/e2e.txt"), ("xml", "xml/e2e.xml")):
        data, end = (FIXTURES / name).read_bytes(), name.rpartition(".")[2]
        one, several = {f"a.{end}": data}, {f"a.{end}": data, f"b.{end}": data}
        for files, folder in ((one, "single"), (several, "multifile")):
            _write(root / "zip" / kind / folder / "a.zip", zipped(files))
            _write(root / "tar_gz" / kind / folder / "a.tar.gz", tarred(files, "w:gz"))


def _put(root: Path, folder: str, *files: Path) -> None:
    for file in files:
        (root / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / folder / file.name)


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("seatunnel")
    if FIXTURES.exists():
        lay_out(made / "read")
    return made


def moved(file: Path, root: Path) -> Path:
    """The job with the two prefixes of its paths replaced, as the README wants it."""
    text = file.read_text(encoding="utf-8")
    text = text.replace('"/tmp/', f'"{root}/tmp/').replace('"/seatunnel/', f'"{root}/')
    (root / file.name).write_text(text, encoding="utf-8")
    return root / file.name


@pytest.mark.parametrize("file", job_files(*RUN))
def test_a_job_of_files_runs_unchanged(session: SparkSession, root: Path, file: Path) -> None:
    if "lzo_to_console" in file.name:
        lines = session.read.text(str(FIXTURES / "json" / "e2e.json"))
        codec = "io.airlift.compress.lzo.LzopCodec"
        lines.write.mode("overwrite").option("compression", codec).text(f"{root}/read/lzo_json")
    run(session, read_job(moved(file, root)))


@pytest.mark.parametrize("file", job_files(*REFUSED))
def test_a_job_of_several_tables_is_refused_by_its_option(root: Path, file: Path) -> None:
    with pytest.raises(BadJobFile, match="'tables_configs' of source LocalFile is not built yet"):
        read_job(moved(file, root))
