"""The env block: what is read, what is passed on, and what is refused."""

from __future__ import annotations

import pytest

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
            "option 'jars' of env is not built yet; start the worker with --conf spark.jars=…",
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
