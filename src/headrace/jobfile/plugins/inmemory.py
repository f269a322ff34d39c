"""InMemory: SeaTunnel's test sink. It forgets its rows, and fails where it is told to."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options


def _flaw(options: Mapping[str, JsonValue]) -> str | None:
    key, value = options.get("assert_options_key"), options.get("assert_options_value")
    if key is not None and key != value:
        return f"assert_options_key is {key!r}, and assert_options_value {value!r}"
    return None


def _fault(name: str, doc: str) -> Option:
    return Option(name, Kind.BOOL, default=False, doc=doc)


IN_MEMORY = PluginDecl(
    name="InMemory",
    role="sink",
    doc="For tests: counts its rows, forgets them, and fails where it is told to. Every failure "
    "but that of `assert_options_key` is one that the job's retries repeat.",
    flaw=_flaw,
    options=Options(
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
