"""Where a job's rows are now, and the commands that show them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from headrace.views import RunView

ROWS_SHOWN = 10  # by a command that shows a table
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # Spark wants any other one in backticks
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_SPARK_JARS = frozenset({"org.apache.iceberg", "org.xerial"})  # groups: Iceberg, its catalog's SQL


def outputs_of(view: RunView) -> Sequence[Mapping[str, str]]:
    """For each sink that wrote somewhere: its name, the place, and how to look at it."""
    found: list[Mapping[str, str]] = []
    for pipeline in view.pipelines:
        for sink, facts in pipeline.commits.items():
            if isinstance(facts, dict) and (place := _place(facts)):
                found.append({"sink": sink, **place})
    return found


def lines_of(outputs: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """As people read it: the place, and below it a command a line."""
    for output in outputs:
        named = output.get("table", output["sink"])
        yield f"{named} is in {output['location']}"
        for tool, name in (("pyiceberg", "PyIceberg"), ("spark", "Spark")):
            if tool in output:
                yield f"  {name}: {output[tool]}"
        if "catalog" in output:
            yield f"  Both need the settings of your catalog {output['catalog']!r}."


def _place(facts: Mapping[str, Any]) -> Mapping[str, str]:
    match facts:
        case {"table": str(table), "location": str(location)}:
            warehouse = facts.get("warehouse")
            own = warehouse if isinstance(warehouse, str) else None
            tools = {"pyiceberg": _by_pyiceberg(table, own), "spark": _by_spark(table, own)}
            # The commands are complete for the embedded catalog alone: nothing is known of another.
            needed = {} if own is not None else {"catalog": table.partition(".")[0]}
            return {"table": table, "location": location, **tools, **needed}
        case {"table": str(table), "database": str(database)}:
            return {"table": table, "location": database}
        case {"folder": str(folder)}:
            return {"location": folder}
        case _:
            return {}


def _by_pyiceberg(table: str, warehouse: str | None) -> str:
    """With the embedded catalog it works as it stands; another one is in the user's settings."""
    catalog, _, name = table.partition(".")
    how = ""
    if warehouse is not None:
        uri = f"sqlite:///{quote(_folder(warehouse))}/catalog.db"
        how = f', type="sql", uri={_text(uri)}'
    program = (
        "from pyiceberg.catalog import load_catalog; "
        f"print(load_catalog({_text(catalog)}{how}).load_table({_text(name)})"
        f".scan(limit={ROWS_SHOWN}).to_arrow())"
    )
    return f"python -c {shlex.quote(program)}"


def _by_spark(table: str, warehouse: str | None) -> str:
    parts = [part if _PLAIN_NAME.fullmatch(part) else f"`{part}`" for part in table.split(".")]
    query = f"SELECT * FROM {'.'.join(parts)} LIMIT {ROWS_SHOWN}"  # noqa: S608  only shown
    words = ["spark-sql"]
    if warehouse is not None:
        catalog = f"spark.sql.catalog.{table.partition('.')[0]}"
        settings = {
            catalog: _SPARK_CATALOG,
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{_folder(warehouse)}/catalog.db",
            f"{catalog}.warehouse": warehouse,
        }
        words += ["--packages", ",".join(_packages())]
        words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return shlex.join([*words, "-e", query])


def _packages() -> Sequence[str]:
    from headrace.worker.jars import JARS  # imports pyspark

    return [jar.coordinate for jar in JARS if jar.group in _SPARK_JARS]


def _folder(warehouse: str) -> str:
    """No URL, though it begins as one: a `#`, a `?` and a `%20` in it stand for themselves."""
    return warehouse.removeprefix("file:")


def _text(value: str) -> str:
    """As it stands in a program of Python."""
    return json.dumps(value, ensure_ascii=False)
