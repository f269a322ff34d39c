"""Console: shows rows on the worker's standard output."""

from __future__ import annotations

from headrace.jobfile.options import Kind, Option, Options, PluginDecl, common_options

CONSOLE = PluginDecl(
    name="Console",
    role="sink",
    doc="Prints the first 100 rows of an epoch, where the worker runs. `headrace run` and "
    "`headrace up` show them too, and keep them in `logs/worker.out` of the home.",
    options=Options(
        (
            Option("log.print.data", Kind.BOOL, default=True),
            Option("log.print.delay.ms", Kind.INT, 0, minimum=0),
            *common_options("sink"),
        )
    ),
)
