"""The env block: what is read, what is passed on, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.errors import Refused
from headrace.jobfile.spec_checks import check_spec
from tests.jobfile.samples import job, problem, read


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("parallelisms = 2", "unknown option 'parallelisms' of env; did you mean 'parallelism'?"),
        (
            "parallelism = 10001",
            "option 'parallelism' of env must be at most 10000, and is 10001",
        ),
        (
            "checkpoint.interval = 0",
            "option 'checkpoint.interval' of env must be at least 1, and is 0",
        ),
        ("parallelism = 0", "option 'parallelism' of env must be at least 1, and is 0"),
        ("job.mode = BACH", "option 'job.mode' of env can't be 'BACH'; did you mean 'BATCH'?"),
        (
            "read_limit.rows_per_second = 5",
            "option 'read_limit.rows_per_second' of env is not built yet",
        ),
        (
            "read_limit { bytes_per_second = 5 }",
            "option 'read_limit.bytes_per_second' of env is not built yet",
        ),
        (
            'jars = "a.jar"',
            "each value of option 'jars' of env can't be 'a.jar': it must be "
            "group:artifact:version, such as org.apache.commons:commons-csv:1.14.1",
        ),
        (
            'jars = "file:///a.jar;file:///b.jar"',
            "each value of option 'jars' of env can't be 'file:///a.jar;file:///b.jar': it must be "
            "no path, no URL and no list of them, but group:artifact:version, such as "
            "org.apache.commons:commons-csv:1.14.1",
        ),
        (
            'jars = ["org.toy:thing:latest.release"]',
            "each value of option 'jars' of env can't be 'org.toy:thing:latest.release': it must "
            "name one version, and not 'latest.release': group:artifact:version, such as "
            "org.apache.commons:commons-csv:1.14.1",
        ),
        (
            "shade.identifier = base64",
            "option 'shade.identifier' of env with the value 'base64' is not built yet",
        ),
        ("tag_filter { a = b }", "option 'tag_filter' of env is not built yet"),
        ('job.name = ""', "job.name must have 1 to 200 characters"),
        (
            "execution.parallelism = 1, parallelism = 2",
            "'execution.parallelism' and 'parallelism' are the same option of env; give one",
        ),
    ],
)
def test_an_env_option_that_can_not_be_used_is_refused(env: str, said: str) -> None:
    refused = problem(job(env=env), strict=True)

    assert refused.split(": ", 1)[1] == said
    assert refused.startswith("job.conf:2:")


def test_env_is_read_whatever_way_its_options_are_written() -> None:
    spec = read(
        job(
            env="job { mode = batch, name = n, retry { times = 0, interval.seconds = 7 }\n"
            "lost-workers.max = 4 }\n"
            "execution.parallelism = 3, checkpoint.interval = 5000, checkpoint.timeout = 6000\n"
            "min-pause = 0, checkpoint.max-retained = 3\n"
            'spark.executor.memory = "1g", spark { app.name = x }\n'
            "flink.a.b-c = 5, savemode.execute.location = CLIENT, shade.identifier = default\n"
            "custom_parameters { k = v }"
        )
    )

    assert spec.name == "n"
    assert spec.env.model_dump() == {
        "job_mode": "BATCH",
        "parallelism": 3,
        "checkpoint_interval_ms": 5000,
        "checkpoint_timeout_ms": 6000,
        "checkpoint_min_pause_ms": 0,
        "checkpoint_retained": 3,
        "retry_times": 0,
        "retry_interval_s": 7,
        "lost_workers_max": 4,
        "other": {
            "spark.executor.memory": "1g",
            "spark.app.name": "x",
            "flink.a.b-c": 5,
            "custom_parameters": {"k": "v"},
        },
    }


def test_env_that_is_no_block_is_refused() -> None:
    assert problem("env = 5") == "job.conf:1:7: env must be a block, and is 5"


def test_jars_that_a_job_asks_for_are_kept_as_it_wrote_them() -> None:
    spec = read(job(env='jars = ["org.toy:a:1", "org.toy:b:2"]'))
    assert spec.env.jars == ("org.toy:a:1", "org.toy:b:2")
    assert spec.env.other == {"jars": ["org.toy:a:1", "org.toy:b:2"]}


@pytest.mark.parametrize(
    ("jars", "said"),
    [
        ("org.toy:a:1", "must be a list of at most 50 coordinates"),
        (["org.toy:a:1"] * 51, "must be a list of at most 50 coordinates"),
        (["http://h/a.jar"], "'http://h/a.jar' is none: it must be no path, no URL"),
        (["org.toy:a:../../x"], "is none: it must be no path"),
        ([5], "5 is none: it must be group:artifact:version"),
    ],
)
def test_jars_that_came_over_the_wire_are_checked_as_well(jars: Any, said: str) -> None:
    spec = read(job())
    env = spec.env.model_copy(update={"other": {"jars": jars}})
    with pytest.raises(Refused, match=re.escape(said)):
        check_spec(spec.model_copy(update={"env": env}))
