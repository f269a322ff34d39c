"""The descriptor of Console, which shows rows on the worker's standard output."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee
from headrace.plugins.options import Kind, Option, OptionSet, common_options
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.row_kinds import ALL_KINDS


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    shows: bool
    delay_ms: int


def _sink_options(options: ResolvedOptions) -> ConsoleOptions:
    return ConsoleOptions(
        shows=options.flag("log.print.data"), delay_ms=options.integer("log.print.delay.ms")
    )


CONSOLE = Descriptor(
    name="Console",
    role="sink",
    make="headrace.connectors.console.sink:ConsoleSink",
    doc="Prints the first 100 rows of an epoch, where the worker runs. `headrace run` and "
    "`headrace up` show them too, and keep them in `logs/worker.out` of the home.",
    read_options=_sink_options,
    capabilities=Capabilities(
        guarantee=Guarantee.NONE,
        row_kinds=ALL_KINDS,
        multi_table=True,
        how="for looking: the first 100 rows of an epoch are printed when it commits: to the "
        "worker's standard output, which `headrace run` and `headrace up` show and keep in "
        "`logs/worker.out` of the home. A crash right there may print an epoch again",
    ),
    options=OptionSet(
        (
            Option("log.print.data", Kind.BOOL, default=True),
            Option("log.print.delay.ms", Kind.INT, 0, minimum=0),
            *common_options("sink"),
        )
    ),
)
DESCRIPTORS = (CONSOLE,)
