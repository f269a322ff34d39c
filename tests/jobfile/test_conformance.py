"""SeaTunnel's own job files are read unchanged, where they lie; broken ones never crash us."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadJobFile, JobFileUnreadable
from headrace.jobfile.hocon import read_document
from headrace.jobfile.reader import read_job
from headrace.jobfile.spec_checks import check_declared, check_spec
from tests.conformance import every_job_file, job_files
from tests.examples import examples
from tests.jobfile.samples import SAMPLES, outcome

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.conf"))
# Those whose plugins are built; tests/spark/test_seatunnel_jobs.py runs some.
READ = (
    "connector-assert-e2e/assertion/fake_row_to_assert.conf",
    "connector-assert-e2e/assertion/fakesource_to_assert.conf",
    "connector-fake-e2e/fake_to_assert.conf",
    "connector-fake-e2e/fake_to_assert_verify_flink_metrics.conf",
    "connector-fake-e2e/fake_to_assert_with_multitable_exception.conf",
    "connector-fake-e2e/fake_to_assert_with_range.conf",
    "connector-seatunnel-e2e-base/batch_fake_multi_table_to_console.conf",
    "connector-seatunnel-e2e-base/classloader/fake_to_inmemory.conf",
    "connector-seatunnel-e2e-base/retry-times/stream_fake_to_inmemory_with_error.conf",
    "connector-seatunnel-e2e-base/retry-times/stream_fake_to_inmemory_with_error_retry_1.conf",
    "connector-seatunnel-e2e-base/savemode/fake_to_inmemory_savemode.conf",
    "connector-seatunnel-e2e-base/savemode/fake_to_inmemory_savemode_client.conf",
    "connector-seatunnel-e2e-base/stream_fake_to_inmemory_with_runtime_list.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_row_kind_exclude_delete.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_row_kind_exclude_insert.conf",
    "seatunnel-transforms-v2-e2e-part-1/copy_transform.conf",
    "seatunnel-transforms-v2-e2e-part-1/filter_transform.conf",
    "seatunnel-transforms-v2-e2e-part-2/json_path_transform/array_test.conf",
    "seatunnel-transforms-v2-e2e-part-2/spark_date_time_transform.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_datetime.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_from_unixtime.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_numeric.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_string.conf",
    "seatunnel-transforms-v2-e2e-part-2/sql_transform/func_system.conf",
)
READ_SECONDS_MAX = 2.0  # of the processor; a slow grammar takes far longer


@pytest.mark.parametrize("file", every_job_file())
def test_a_job_file_of_seatunnel_is_understood(file: Path) -> None:
    document = read_document(file.read_text(encoding="utf-8"))

    roles = [plugin.role for plugin in document.plugins]
    assert "source" in roles
    assert "sink" in roles
    assert set(document.root.members) <= {"env"}


@pytest.mark.parametrize("file", every_job_file())
def test_a_job_file_of_seatunnel_becomes_a_job_or_says_where_it_can_not(file: Path) -> None:
    result = outcome(file)

    if isinstance(result, BadJobFile):
        assert 1 <= result.line <= file.read_text(encoding="utf-8").count("\n") + 1
        assert result.column >= 1
    else:
        check_declared(result)


@pytest.mark.parametrize("file", job_files(*READ))
def test_a_job_file_whose_plugins_are_built_is_read_unchanged(file: Path) -> None:
    result = outcome(file)

    assert not isinstance(result, BadJobFile), result


def test_without_the_files_of_seatunnel_no_test_vanishes(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "conformance" / "seatunnel" / "jobs"

    for parameters in (every_job_file(folder), job_files(*READ, folder=folder)):
        assert parameters
        for parameter in parameters:
            (mark,) = parameter.marks
            assert isinstance(mark, pytest.MarkDecorator)
            assert mark.name == "skip"
            assert "../shared/conformance/seatunnel/jobs, beside" in mark.kwargs["reason"]


def test_a_file_that_is_missing_among_others_is_no_reason_to_skip(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "d" / "one.conf").touch()

    (parameter,) = job_files("two.conf", folder=tmp_path / "a" / "b" / "c" / "d")

    assert parameter.marks == ()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_of_ours_can_be_submitted(file: Path) -> None:
    check_spec(read_job(file))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_understood(name: str) -> None:
    check_spec(read_job(name, text=SAMPLES[name]))


def test_reading_takes_milliseconds() -> None:
    read_document("a = 1")  # builds the parser
    text = SAMPLES["first.conf"]

    began_s = time.process_time()
    for _ in range(10):
        read_document(text)

    assert time.process_time() - began_s < READ_SECONDS_MAX


PIECES = [
    *"{}[]=:,+\"'$#/\\\n.* ",
    "${",
    '"""',
    "+=",
    "//",
    "source",
    "null",
    "1e9",
    "\x00",
    "é",
    "\ufeff",
]


@given(
    name=st.sampled_from(sorted(SAMPLES)),
    seed=st.integers(0, 2**32),
    changes=st.integers(1, 6),
)
@examples(200)
def test_a_damaged_job_file_is_read_or_refused_and_nothing_else(
    name: str, seed: int, changes: int
) -> None:
    text = SAMPLES[name]
    pick = random.Random(seed)
    for _ in range(changes):
        at, until = sorted(pick.choices(range(len(text)), k=2))
        match pick.randrange(3):
            case 0:
                text = text[:at] + pick.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[min(until, at + 8) :]
            case _:
                text = text[:at] + text[at:until] + text[at:]
        text = text[:20_000]

    result = outcome(name, text=text)

    if isinstance(result, BadJobFile):
        assert 1 <= result.line <= text.count("\n") + 1
        assert result.column >= 1
    else:
        check_declared(result)


PAIRS = [*itertools.permutations("{}[]()=:,;", 2), *itertools.permutations("\"'`\n# ", 2)]
ODD = [
    "\u2028",
    "\u202e",
    "\ufeff",
    "\x85",
    "\ud800",
    "😀",
    "e\u0301",
    "٣",
    "9" * 400,
    "1e999",
    "-0",
    "{" * 300,
    "[" * 300,
    "a." * 100,
    "- " * 100,
    "&a *a ",
    "<<: ",
    "!!int ",
    "${a:${b}}",
    "/* config",
    "''",
    "; ",
]
READ_CPU_SECONDS_MAX = 5.0  # of one damaged file; a reader that backtracks takes far longer


@given(
    name=st.sampled_from(sorted(SAMPLES)),
    changes=st.lists(
        st.one_of(
            st.tuples(st.just("delete"), st.integers(0, 2000), st.integers(1, 40)),
            st.tuples(st.just("double"), st.integers(0, 2000), st.integers(1, 200)),
            st.tuples(st.just("write"), st.integers(0, 2000), st.sampled_from(ODD)),
            st.tuples(st.just("byte"), st.integers(0, 2000), st.integers(0, 255)),
            st.tuples(st.just("swap"), st.integers(0, 2000), st.sampled_from(PAIRS)),
        ),
        min_size=1,
        max_size=5,
    ),
)
@examples(200)
def test_a_damaged_file_of_any_kind_gives_a_job_or_errors_with_places(
    name: str, changes: list[tuple[str, int, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = SAMPLES[name].encode()
    for how, where, what in changes:
        data = damaged(data, how, where % (len(data) + 1), what)
    file = tmp_path_factory.getbasetemp() / f"damaged-{name}"
    file.write_bytes(data)

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        with pytest.raises(JobFileUnreadable, match="is not UTF-8"):
            read_job(file)
        return
    began_s = time.process_time()
    result = outcome(file)

    assert time.process_time() - began_s < READ_CPU_SECONDS_MAX
    if isinstance(result, BadJobFile):
        lines = text.count("\n") + 1
        for place in ((result.line, result.column), *(each[:2] for each in result.others)):
            assert 1 <= place[0] <= lines + 1
            assert place[1] >= 1
        assert len(str(result).split("\n")) == len(result.problems) + bool(result.more)
    else:
        check_declared(result)


def damaged(data: bytes, how: str, at: int, what: Any) -> bytes:
    match how:
        case "delete":
            return data[:at] + data[at + what :]
        case "double":
            return data[: at + what] + data[at:]
        case "write":
            return data[:at] + what.encode(errors="surrogatepass") + data[at:]
        case "byte":
            return data[:at] + bytes([what]) + data[at + 1 :]
        case _:
            old, new = what
            return data[:at] + data[at:].replace(old.encode(), new.encode(), 1)


LARGE = 100_000  # characters; what is not linear in them takes minutes


@pytest.mark.parametrize("suffix", [".conf", ".json", ".yaml", ".sql"])
@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "[",
        "(",
        "a{",
        "a.",
        "- ",
        "? ",
        '"',
        "'",
        "*a ",
        "${",
        "/* config ",
        "a = [\n",
        "}",
        "@",
    ],
)
def test_a_large_file_of_nonsense_is_refused_in_seconds(suffix: str, piece: str) -> None:
    began_s = time.process_time()

    assert isinstance(outcome(f"job{suffix}", text=piece * (LARGE // len(piece))), BadJobFile)

    assert time.process_time() - began_s < READ_CPU_SECONDS_MAX


@given(pieces=st.lists(st.sampled_from([*PIECES, "a", "b", "1"]), max_size=60))
@examples(200)
def test_noise_is_refused_and_nothing_else(pieces: list[str]) -> None:
    with pytest.raises(BadJobFile):  # it can't have a sink
        read_job("noise.conf", text="".join(pieces))
