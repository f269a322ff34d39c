"""Declarations of the plugins without a target: FakeSource, Console, InMemory and the transforms.

- FakeSource makes up rows from a schema, for tests and first steps.
- Console shows rows on the worker's standard output.
- InMemory is SeaTunnel's test sink: it forgets its rows, and fails where its options say so.
- FieldMapper and Filter choose which fields go on, under which names and in which order.
- Sql runs one query over the tables it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import JsonValue

from headrace.jobfile.options import (
    PARALLELISM_MAX,
    Kind,
    Option,
    OptionSet,
    PluginDecl,
    common_options,
)

ROWS_MAX = (2**63 - 1) // PARALLELISM_MAX  # of one reader: a row number must fit into 64 bits
SPLITS_MAX = 10_000  # of one reader
READ_INTERVAL_MAX_MS = 24 * 3600 * 1000

_MODES = ("RANGE", "TEMPLATE")
# By type: the kind of its values, and their upper limit, which is exclusive.
_NUMBERS: tuple[tuple[str, Kind, float], ...] = (
    ("tinyint", Kind.INT, 2**7 - 1),
    ("smallint", Kind.INT, 2**15 - 1),
    ("int", Kind.INT, 2**31 - 1),
    ("bigint", Kind.INT, 2**63 - 1),
    ("float", Kind.FLOAT, 3.4028234663852886e38),
    ("double", Kind.FLOAT, 1.7976931348623157e308),
)
# By part of a date or time: the least and the greatest value of its templates.
_PARTS: tuple[tuple[str, int, int], ...] = (
    ("date.year", 1, 9999),
    ("date.month", 1, 12),
    ("date.day", 1, 31),
    ("time.hour", 0, 23),
    ("time.minute", 0, 59),
    ("time.second", 0, 59),
)


def _number_options(name: str, kind: Kind, top: float) -> tuple[Option, ...]:
    return (
        Option(f"{name}.fake.mode", Kind.STRING, "RANGE", choices=_MODES),
        Option(f"{name}.template", Kind.LIST, items=kind, doc="Values to choose from."),
        Option(f"{name}.min", kind, minimum=0, maximum=top),
        Option(f"{name}.max", kind, minimum=0, maximum=top, doc="Exclusive."),
    )


def _size(name: str, default: int) -> Option:
    return Option(name, Kind.INT, default, minimum=0)


def _fault(name: str, doc: str) -> Option:
    return Option(name, Kind.BOOL, default=False, doc=doc)


def _in_memory_flaw(options: Mapping[str, JsonValue]) -> str | None:
    key, value = options.get("assert_options_key"), options.get("assert_options_value")
    if key is not None and key != value:
        return f"assert_options_key is {key!r}, and assert_options_value {value!r}"
    return None


def _first_duplicate(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _mapper_flaw(options: Mapping[str, JsonValue]) -> str | None:
    mapping = cast("Mapping[str, str]", options["field_mapper"])
    if not mapping:
        return "field_mapper names no field; write {old = new, …}"
    if (twice := _first_duplicate(mapping.values())) is not None:
        return f"field_mapper gives two fields the name {twice!r}"
    return None


def _filter_flaw(options: Mapping[str, JsonValue]) -> str | None:
    names = [name for name in ("include_fields", "exclude_fields") if name in options]
    if len(names) > 1:
        return "give include_fields or exclude_fields, and not both"
    fields = cast("list[str]", options[names[0]])
    if not fields:
        return f"{names[0]} names no field"
    if (twice := _first_duplicate(fields)) is not None:
        return f"{names[0]} names {twice!r} twice"
    return None


FAKE_SOURCE = PluginDecl(
    name="FakeSource",
    role="source",
    doc="Makes up rows from a schema. In STREAMING mode it gives them once, and the job runs on "
    "without more.",
    one_of=(("schema",),),
    options=OptionSet(
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
            *(option for number in _NUMBERS for option in _number_options(*number)),
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

CONSOLE = PluginDecl(
    name="Console",
    role="sink",
    doc="Prints the first 100 rows of an epoch, where the worker runs. `headrace run` and "
    "`headrace up` show them too, and keep them in `logs/worker.out` of the home.",
    options=OptionSet(
        (
            Option("log.print.data", Kind.BOOL, default=True),
            Option("log.print.delay.ms", Kind.INT, 0, minimum=0),
            *common_options("sink"),
        )
    ),
)


IN_MEMORY = PluginDecl(
    name="InMemory",
    role="sink",
    doc="For tests: counts its rows, forgets them, and fails where it is told to. Every failure "
    "but that of `assert_options_key` is one that the job's retries repeat.",
    flaw=_in_memory_flaw,
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


FIELD_MAPPER = PluginDecl(
    name="FieldMapper",
    role="transform",
    doc="Keeps and renames fields: only those that are mapped, in the order of the mapping.",
    flaw=_mapper_flaw,
    options=OptionSet(
        (
            Option(
                "field_mapper", Kind.MAP, required=True, doc="`{old = new}`; every field to keep."
            ),
            *common_options("transform"),
        )
    ),
)

FILTER = PluginDecl(
    name="Filter",
    role="transform",
    doc="Keeps some of the fields, as in SeaTunnel. Rows are filtered with Sql.",
    one_of=(("include_fields", "exclude_fields"),),
    flaw=_filter_flaw,
    options=OptionSet(
        (
            Option(
                "include_fields",
                Kind.LIST,
                aliases=("fields",),
                doc="The fields to keep, in this order.",
            ),
            Option("exclude_fields", Kind.LIST, doc="The fields to leave out."),
            *common_options("transform"),
        )
    ),
)

SQL = PluginDecl(
    name="Sql",
    role="transform",
    doc="Runs a query; its inputs are the tables.",
    options=OptionSet(
        (
            Option("query", Kind.STRING, required=True, doc="a SELECT statement."),
            Option("engine", Kind.STRING, "ZETA", choices=("ZETA", "INTERNAL"), doc="One only."),
            Option(
                "row_error_handle_way",
                Kind.STRING,
                "FAIL",
                choices=("FAIL", "SKIP"),
                supported=("FAIL",),
            ),
            *common_options("transform"),
        )
    ),
)
