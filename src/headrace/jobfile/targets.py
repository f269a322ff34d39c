"""Sinks that aim at the same table or folder.

Pipelines of a job don't wait for each other. So a sink that does something to its target before
its first row could do it to the rows that another pipeline has written by then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue

from headrace.jobfile.saving import data_mode, opens, schema_mode

_INTO = re.compile(r"\s*insert\s+into\s+([^\s(]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Aimed:
    """A sink, its options with their secrets."""

    pipeline: int
    name: str
    plugin: str
    options: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Clash:
    opener: Aimed
    other: Aimed

    def __str__(self) -> str:
        schema, data = schema_mode(self.opener.options), data_mode(self.opener.options)
        return (
            f"sink {self.opener.name} of pipeline {self.opener.pipeline} and sink "
            f"{self.other.name} of pipeline {self.other.pipeline} write to the same place, which "
            f"{self.opener.name} opens with schema_save_mode = {schema} and data_save_mode = "
            f"{data}: pipelines don't wait for each other, so it could find the rows of the "
            "other one. Feed one sink with both tables (plugin_input = [a, b]), or write to "
            "two places"
        )


def find_clash(sinks: Sequence[Aimed]) -> Clash | None:
    """The first sink that opens what a sink of another pipeline writes to."""
    places = [(sink, place) for sink in sinks if (place := _place(sink)) is not None]
    for opener, opened in places:
        if not opens(opener.options):
            continue
        for other, place in places:
            # A folder also holds what is written to a folder in it.
            if other.pipeline != opener.pipeline and place[: len(opened)] == opened:
                return Clash(opener, other)
    return None


def _place(sink: Aimed) -> tuple[str, ...] | None:
    options = sink.options
    match sink.plugin:
        case "LocalFile" | "HdfsFile":
            return _folder(options)
        case "Iceberg":
            config = json.dumps(options.get("iceberg.catalog.config"), sort_keys=True)
            catalog = str(options.get("catalog_name") or "")
            namespace = str(options.get("namespace") or "default")
            return ("table", catalog, config, namespace, str(options.get("table")))
        case "Jdbc":
            url = str(options.get("url")).partition("?")[0]
            return ("database", url, _table(options))
        case _:
            return None


def _folder(options: Mapping[str, JsonValue]) -> tuple[str, ...]:
    path = urlsplit(str(options.get("path")))
    system = path if path.scheme else urlsplit(str(options.get("fs.defaultFS") or "file:"))
    return ("files", system.scheme, system.netloc, *(part for part in path.path.split("/") if part))


def _table(options: Mapping[str, JsonValue]) -> str:
    into = _INTO.match(str(options.get("query") or ""))
    name = into[1] if into else str(options.get("table"))
    return name.replace('"', "").removeprefix("public.")
