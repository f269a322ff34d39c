"""Which class a plugin's name stands for."""

from __future__ import annotations

from headrace.connectors.connector import Setting, Sink, Source
from headrace.connectors.console import ConsoleSink
from headrace.connectors.fake import FakeSource
from headrace.connectors.iceberg import IcebergSink
from headrace.errors import Refused
from headrace.model.jobspec import PluginSpec

_SOURCES = {"fakesource": FakeSource}
_SINKS = {"console": ConsoleSink, "iceberg": IcebergSink}


def make_source(spec: PluginSpec, setting: Setting) -> Source:
    made = _SOURCES.get(spec.plugin.lower())
    if made is None:
        raise Refused(f"this worker has no source {spec.plugin!r}; known are FakeSource")
    return made(spec.name, setting)


def make_sink(spec: PluginSpec, setting: Setting) -> Sink:
    made = _SINKS.get(spec.plugin.lower())
    if made is None:
        raise Refused(f"this worker has no sink {spec.plugin!r}; known are Console, Iceberg")
    return made(spec.name, setting)
