"""The env block of a job file: its options and how they become an `EnvSpec`.

They hold for the job as a whole: mode, parallelism, checkpoints, retries.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from headrace.model.jobs.spec import LOST_WORKERS_MAX, EnvSpec
from headrace.plugins.jars import own_jar_flaw
from headrace.plugins.option_values import convert
from headrace.plugins.options import (
    PARALLELISM_MAX,
    Kind,
    Option,
    OptionSet,
    given_options,
    note_idle,
)
from headrace.plugins.syntax_tree import Node, Note, Object, Problem, describe

JOB_NAME_CHARS_MAX = 200
_MODES = ("BATCH", "STREAMING")

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


def read_env(node: Node | None, *, note: Note) -> tuple[EnvSpec, str | None]:
    """What the env block says, and the job's name if it gives one. Raises `Problem`."""
    if node is None:
        return EnvSpec(), None
    if not isinstance(node, Object):
        raise Problem(node.place, f"env must be a block, and is {describe(node)}")
    fields: dict[str, Any] = {}
    other: dict[str, JsonValue] = {}
    name: str | None = None
    options = given_options(ENV, node, title="env")
    note_idle(ENV, options, title="env", note=note)
    for given in options:
        value = convert(given, title="env")
        key = given.option.name if given.option else given.path
        if key == "job.name":
            name = str(value)
            if not 1 <= len(name) <= JOB_NAME_CHARS_MAX:
                text = f"job.name must have 1 to {JOB_NAME_CHARS_MAX} characters"
                raise Problem(given.node.place, text)
        elif key in _FIELDS:
            fields[_FIELDS[key]] = value
        elif given.option is None or key in _KEPT_AS_WRITTEN:
            other[key] = value
    return EnvSpec(**fields, other=other), name
