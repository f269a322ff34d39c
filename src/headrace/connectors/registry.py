"""Which class a plugin's name stands for."""

from __future__ import annotations

from headrace.connectors.assertion.sink import AssertSink
from headrace.connectors.connector import Setting, Sink, Source
from headrace.connectors.console import ConsoleSink
from headrace.connectors.fake import FakeSource
from headrace.connectors.file_source import FileSource
from headrace.connectors.files import FileSink
from headrace.connectors.iceberg import IcebergSink
from headrace.connectors.iceberg_source import IcebergSource
from headrace.connectors.inmemory import InMemorySink
from headrace.connectors.jdbc.sink import JdbcSink
from headrace.connectors.jdbc.source import JdbcSource
from headrace.errors import Refused
from headrace.model.jobspec import PluginSpec

_SOURCES = {
    "fakesource": FakeSource,
    "hdfsfile": FileSource,
    "iceberg": IcebergSource,
    "jdbc": JdbcSource,
    "localfile": FileSource,
}
_SINKS = {
    "assert": AssertSink,
    "console": ConsoleSink,
    "hdfsfile": FileSink,
    "iceberg": IcebergSink,
    "inmemory": InMemorySink,
    "jdbc": JdbcSink,
    "localfile": FileSink,
}


def make_source(spec: PluginSpec, setting: Setting) -> Source:
    made = _SOURCES.get(spec.plugin.lower())
    if made is None:
        known = "FakeSource, HdfsFile, Iceberg, Jdbc, LocalFile"
        raise Refused(f"this worker has no source {spec.plugin!r}; known are {known}")
    return made(spec.name, setting)


def make_sink(spec: PluginSpec, setting: Setting) -> Sink:
    made = _SINKS.get(spec.plugin.lower())
    if made is None:
        known = "Assert, Console, HdfsFile, Iceberg, InMemory, Jdbc, LocalFile"
        raise Refused(f"this worker has no sink {spec.plugin!r}; known are {known}")
    return made(spec.name, setting)
