"""Console: shows the rows in the worker's log."""

from __future__ import annotations

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options

CONSOLE = PluginDecl(
    name="Console",
    role="sink",
    doc="Writes rows to the log, for looking at them.",
    options=Options(
        (
            Option("log.print.data", Kind.BOOL, default=True),
            Option("log.print.delay.ms", Kind.INT, 0, minimum=0),
            *common_options("sink"),
        )
    ),
)
