"""SeaTunnel's own job files are read unchanged, where they lie; broken ones never crash us."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadJobFile
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
    "connector-seatunnel-e2e-base/classloader/fake_to_inmemory.conf",
    "connector-seatunnel-e2e-base/retry-times/stream_fake_to_inmemory_with_error.conf",
    "connector-seatunnel-e2e-base/retry-times/stream_fake_to_inmemory_with_error_retry_1.conf",
    "connector-seatunnel-e2e-base/stream_fake_to_inmemory_with_runtime_list.conf",
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
    document = read_document(SAMPLES[name])

    assert {plugin.role for plugin in document.plugins} >= {"source", "sink"}


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


@given(pieces=st.lists(st.sampled_from([*PIECES, "a", "b", "1"]), max_size=60))
@examples(200)
def test_noise_is_refused_and_nothing_else(pieces: list[str]) -> None:
    with pytest.raises(BadJobFile):  # it can't have a sink
        read_job("noise.conf", text="".join(pieces))
