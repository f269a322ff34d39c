"""FakeSource: rows made up from a schema, for tests and first steps."""

from __future__ import annotations

from headrace.jobfile.options import (
    PARALLELISM_MAX,
    Kind,
    Option,
    Options,
    PluginDecl,
    common_options,
)

ROWS_MAX = (2**63 - 1) // PARALLELISM_MAX  # of one reader: all rows of a job have a number
SPLITS_MAX = 10_000
READ_INTERVAL_MAX_MS = 24 * 3600 * 1000

_MODES = ("RANGE", "TEMPLATE")
# By type: the kind of its values and the largest one, which is exclusive.
_NUMBERS: tuple[tuple[str, Kind, float], ...] = (
    ("tinyint", Kind.INT, 2**7 - 1),
    ("smallint", Kind.INT, 2**15 - 1),
    ("int", Kind.INT, 2**31 - 1),
    ("bigint", Kind.INT, 2**63 - 1),
    ("float", Kind.FLOAT, 3.4028234663852886e38),
    ("double", Kind.FLOAT, 1.7976931348623157e308),
)
# By part of a date or time: what its templates may hold.
_PARTS: tuple[tuple[str, int, int], ...] = (
    ("date.year", 1, 9999),
    ("date.month", 1, 12),
    ("date.day", 1, 31),
    ("time.hour", 0, 23),
    ("time.minute", 0, 59),
    ("time.second", 0, 59),
)


def _number(name: str, kind: Kind, top: float) -> tuple[Option, ...]:
    return (
        Option(f"{name}.fake.mode", Kind.STRING, "RANGE", choices=_MODES),
        Option(f"{name}.template", Kind.LIST, items=kind, doc="Values to choose from."),
        Option(f"{name}.min", kind, minimum=0, maximum=top),
        Option(f"{name}.max", kind, minimum=0, maximum=top, doc="Exclusive."),
    )


def _size(name: str, default: int) -> Option:
    return Option(name, Kind.INT, default, minimum=0)


FAKE_SOURCE = PluginDecl(
    name="FakeSource",
    role="source",
    doc="Makes up rows from a schema. In STREAMING mode it gives them once, and the job runs on "
    "without more.",
    one_of=(("schema",),),
    options=Options(
        (
            Option("schema", Kind.SCHEMA, vectors=False, doc="The columns to make up."),
            Option("rows", Kind.JSON, doc="Rows to give as they are: [{kind, fields}]."),
            Option("row.num", Kind.INT, 5, minimum=0, maximum=ROWS_MAX, doc="Rows of each reader."),
            Option(
                "split.num",
                Kind.INT,
                1,
                minimum=1,
                maximum=SPLITS_MAX,
                doc="Splits of each reader: each gives its part of `row.num`, or all `rows`.",
            ),
            Option(
                "split.read-interval",
                Kind.INT,
                1,
                minimum=0,
                maximum=READ_INTERVAL_MAX_MS,
                doc="In ms, of each split: all readers read one split in each interval. 1 or less "
                "means no pause. With `checkpoint.interval`, an epoch reads as many splits as "
                "fit into it, and at least one of each reader.",
            ),
            Option("split.row", Kind.INT, doc="As in SeaTunnel.", idle="nothing reads it"),
            _size("map.size", 5),
            _size("array.size", 5),
            _size("bytes.length", 5),
            _size("string.length", 5),
            Option("string.fake.mode", Kind.STRING, "RANGE", choices=_MODES),
            Option("string.template", Kind.LIST, doc="Values to choose from."),
            *(option for number in _NUMBERS for option in _number(*number)),
            *(
                Option(f"{part}.template", Kind.LIST, items=Kind.INT, minimum=low, maximum=high)
                for part, low, high in _PARTS
            ),
            _size("vector.dimension", 4),
            _size("binary.vector.dimension", 8),
            Option("vector.float.min", Kind.FLOAT),
            Option("vector.float.max", Kind.FLOAT),
            Option("auto.increment.enabled", Kind.BOOL, default=False),
            Option("auto.increment.start", Kind.INT, 1),
            Option(
                "tables_configs",
                Kind.JSON,
                supported=(),
                unsupported="is not built yet; write a FakeSource block for each table",
            ),
            *common_options("source"),
        )
    ),
)
