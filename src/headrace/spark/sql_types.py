"""Asks Spark for the types of expressions within a query, without running any of it.

The query holds `typeof(named_struct('<prefix>_<number>_<n>', expression, …))` where types are
wanted; the analyzed plan knows the structure's fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from headrace.spark.sql_guard import class_name, expressions_of

_TYPE_OF = "TypeOf"


def types_by_number(frame: DataFrame, prefix: str) -> Mapping[int, Sequence[str]]:
    """The types that such structures hold, as Spark writes them in short, by their number. Of two
    with the same number and other types, e.g. in two subqueries, none is returned."""
    analyzed: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyright: ignore
    found: dict[int, set[tuple[str, ...]]] = {}
    for part in expressions_of(cast("Any", analyzed)):
        if class_name(part) != _TYPE_OF:
            continue
        described = json.loads(part.child().dataType().json())
        if not isinstance(described, dict) or described["type"] != "struct":
            continue
        kind = spark.StructType.fromJson(cast("dict[str, Any]", described))
        if kind.names and kind.names[0].startswith(f"{prefix}_"):
            number = kind.names[0].split("_")[1]
            if number.isdigit():
                types = tuple(field.dataType.simpleString() for field in kind.fields)
                found.setdefault(int(number), set()).add(types)
    return {number: types.pop() for number, types in found.items() if len(types) == 1}
