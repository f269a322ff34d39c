"""The env block of a job file: its options and how they become an `EnvSpec`.

They hold for the job as a whole: mode, parallelism, checkpoints, retries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from headrace.model.ids import NAME
from headrace.model.jobs.spec import LOST_WORKERS_MAX, EnvSpec
from headrace.plugins.jars import own_jar_flaw
from headrace.plugins.option_values import convert
from headrace.plugins.options import (
    PARALLELISM_MAX,
    GivenOption,
    Kind,
    Option,
    OptionSet,
    given_options,
    judge_unknown,
    note_idle,
)
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import Node, Object, Problem, describe

JOB_NAME_CHARS_MAX = 200
_MODES = ("BATCH", "STREAMING")


def _group_flaw(name: str) -> str | None:
    if NAME.fullmatch(name):
        return None
    return "take up to 100 letters, digits, '.', '_' or '-', beginning with a letter or a digit"


ENV = OptionSet(
    (
        Option(
            "job.mode",
            Kind.STRING,
            "BATCH",
            choices=_MODES,
            doc="STREAMING: it ends only when it is cancelled, or stopped with a savepoint.",
        ),
        Option("job.name", Kind.STRING),
        Option(
            "group",
            Kind.STRING,
            flaw=_group_flaw,
            doc="The group of workers that the job runs in; `headrace run --group` wins over it. "
            "Without either it is `default`.",
        ),
        Option(
            "parallelism",
            Kind.INT,
            1,
            minimum=1,
            maximum=PARALLELISM_MAX,
            aliases=("execution.parallelism",),
        ),
        Option(
            "checkpoint.interval",
            Kind.INT,
            minimum=1,
            doc="In ms. A batch job with it runs in epochs that take about so long, without it in "
            "one. A streaming job has an epoch every interval, without it every 10000 ms.",
        ),
        Option(
            "checkpoint.timeout",
            Kind.INT,
            60_000,
            minimum=1,
            doc="In ms, from prepared to completed: commits that take longer are tried again. "
            "How long rows are read and staged has no limit.",
        ),
        Option(
            "checkpoint.min-pause",
            Kind.INT,
            0,
            minimum=0,
            aliases=("min-pause",),
            doc="In ms, from the end of an epoch to the next one. In a batch job epochs take at "
            "least so long instead.",
        ),
        Option(
            "checkpoint.retained",
            Kind.INT,
            20,
            minimum=1,
            aliases=("checkpoint.max-retained",),
            doc="How many completed epochs of each pipeline are kept to be looked at.",
        ),
        Option("checkpoint.retain-after-job-cancelled", Kind.BOOL, supported=(False,)),
        Option(
            "job.retry.times",
            Kind.INT,
            3,
            minimum=0,
            doc="Errors of a pipeline that are tried again; one more ends the job. They begin to "
            "count anew with each completed epoch that had rows. 0: no second attempt, whatever "
            "the cause.",
        ),
        Option(
            "job.retry.interval.seconds",
            Kind.INT,
            3,
            minimum=0,
            doc="From a failed attempt, or a lost worker, to the next attempt.",
        ),
        Option(
            "job.lost-workers.max",
            Kind.INT,
            LOST_WORKERS_MAX,
            minimum=1,
            doc="When so many workers of a pipeline were lost in a row, without a completed epoch "
            "in between, the job ends. An epoch that was running on three different workers as "
            "each was lost ends it in any case.",
        ),
        Option("read_limit.rows_per_second", Kind.INT, supported=()),
        Option("read_limit.bytes_per_second", Kind.INT, supported=()),
        Option(
            "savemode.execute.location",
            Kind.STRING,
            choices=("CLUSTER", "CLIENT"),
            idle="the worker that runs a pipeline makes its tables",
        ),
        Option(
            "jars",
            Kind.LIST,
            flaw=own_jar_flaw,
            doc="Jars that the job needs beyond those of its plug-ins, each as "
            "group:artifact:version; neither paths nor URLs. They come with all that they need, "
            "on workers that [allow them](settings.md#jars-that-jobs-ask-for).",
        ),
        Option("tag_filter", Kind.MAP, supported=()),
        Option("custom_parameters", Kind.MAP, idle="nothing reads it"),
        Option("shade.identifier", Kind.STRING, supported=("default",)),
        Option("sink.flush.interval", Kind.INT, supported=(0,)),
        Option("error_handler", Kind.JSON, supported=()),
        Option("transform_error_handler", Kind.JSON, supported=()),
        Option("sink_error_handler", Kind.JSON, supported=()),
    ),
    prefixes={
        "spark.": "give settings of Spark to the worker with --conf NAME=VALUE",
        "flink.": "jobs run on Spark",
    },
)
_FIELDS = {  # by option, the field of EnvSpec
    "job.mode": "job_mode",
    "parallelism": "parallelism",
    "checkpoint.interval": "checkpoint_interval_ms",
    "checkpoint.timeout": "checkpoint_timeout_ms",
    "checkpoint.min-pause": "checkpoint_min_pause_ms",
    "checkpoint.retained": "checkpoint_retained",
    "job.retry.times": "retry_times",
    "job.retry.interval.seconds": "retry_interval_s",
    "job.lost-workers.max": "lost_workers_max",
}
_KEPT_AS_WRITTEN = frozenset({"custom_parameters", "jars"})


@dataclass(frozen=True, slots=True)
class EnvBlock:
    """What an env block says."""

    env: EnvSpec = field(default_factory=EnvSpec)
    name: str | None = None  # of the job
    group: str | None = None  # of workers, that the job is to run in


def read_env(node: Node | None, *, problems: Problems) -> EnvBlock:
    """What the env block says. What is wrong with it is added to `problems`, and left out."""
    if node is None:
        return EnvBlock()
    if not isinstance(node, Object):
        problems.add(Problem(node.place, f"env must be a block, and is {describe(node)}"))
        return EnvBlock()
    written = given_options(ENV, node, title="env", problems=problems)
    judge_unknown(written, missing=(), title="env", problems=problems)
    note_idle(ENV, written.usable, title="env", note=problems.note)
    values: dict[str, JsonValue] = {}
    for given in written.usable:
        with problems.collect():
            key = given.option.name if given.option else given.path
            values[key] = _checked(key, convert(given, title="env"), given)
    fields: dict[str, Any] = {_FIELDS[key]: values[key] for key in _FIELDS if key in values}
    other = {
        key: value
        for key, value in values.items()
        if key in _KEPT_AS_WRITTEN or ENV.find(key) is None
    }
    return EnvBlock(
        EnvSpec(**fields, other=other), _text(values.get("job.name")), _text(values.get("group"))
    )


def _checked(key: str, value: JsonValue, given: GivenOption) -> JsonValue:
    if key == "job.name" and not 1 <= len(str(value)) <= JOB_NAME_CHARS_MAX:
        text = f"job.name must have 1 to {JOB_NAME_CHARS_MAX} characters"
        raise Problem(given.node.place, text)
    return value


def _text(value: JsonValue) -> str | None:
    return None if value is None else str(value)
