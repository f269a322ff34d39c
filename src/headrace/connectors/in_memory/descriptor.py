"""The descriptor of InMemory, SeaTunnel's test sink: it forgets its rows, and fails where told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import ALL_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemoryOptions:
    """Where it fails, and how."""

    fails_at_stage: bool
    runs_out_of_memory: bool
    fails_at_commit: bool
    sleeps: bool
    errors_by_attempt: tuple[str, ...]


def _sink_options(options: ResolvedOptions) -> InMemoryOptions:
    return InMemoryOptions(
        fails_at_stage=options.flag("throw_exception"),
        runs_out_of_memory=options.flag("throw_out_of_memory"),
        fails_at_commit=options.flag("throw_exception_of_committer"),
        sleeps=options.flag("checkpoint_sleep"),
        errors_by_attempt=options.texts("throw_runtime_exception_list"),
    )


def _fault(name: str, doc: str) -> Option:
    return Option(name, Kind.BOOL, default=False, doc=doc)


def _in_memory_flaw(options: Mapping[str, JsonValue]) -> str | None:
    key, value = options.get("assert_options_key"), options.get("assert_options_value")
    if key is not None and key != value:
        return f"assert_options_key is {key!r}, and assert_options_value {value!r}"
    return None


IN_MEMORY = Descriptor(
    name="InMemory",
    role="sink",
    make="headrace.connectors.in_memory.sink:InMemorySink",
    doc="For tests: counts its rows, forgets them, and fails where it is told to. Every failure "
    "but that of `assert_options_key` is one that the job's retries repeat.",
    read_options=_sink_options,
    flaw=_in_memory_flaw,
    capabilities=Capabilities(
        guarantee=Guarantee.NONE,
        row_kinds=ALL_KINDS,
        multi_table=True,
        how="for testing: rows are counted and forgotten. Its faults are errors like any other: "
        "the job is retried, from its last checkpoint",
    ),
    options=OptionSet(
        (
            _fault("throw_exception", "Each epoch fails once its rows are read, before it counts."),
            _fault("throw_out_of_memory", "The same with a lack of memory, if rows came."),
            _fault("throw_exception_of_committer", "The commit of each epoch fails."),
            _fault("checkpoint_sleep", "The commit of each epoch takes 5 s."),
            Option(
                "throw_runtime_exception_list",
                Kind.LIST,
                doc="The first attempt of the pipeline fails with the first text when rows come, "
                "the second with the second, and so on; later ones do not.",
            ),
            Option(
                "assert_options_key",
                Kind.STRING,
                doc="Refuses the job unless `assert_options_value` is the same.",
            ),
            Option("assert_options_value", Kind.STRING),
            *common_options("sink"),
        )
    ),
)
DESCRIPTORS = (IN_MEMORY,)
