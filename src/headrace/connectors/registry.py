"""The registry of connectors: makes the source or sink that a plugin's name stands for."""

from __future__ import annotations

from headrace.connectors.assertion import AssertSink
from headrace.connectors.connector import Setting, Sink, Source
from headrace.connectors.fake import FakeSource
from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.source import FileSource
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.iceberg.source import IcebergSource
from headrace.connectors.jdbc.sink import JdbcSink
from headrace.connectors.jdbc.source import JdbcSource
from headrace.connectors.targetless import ConsoleSink, InMemorySink
from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec

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
    source_class = _SOURCES.get(spec.plugin.lower())
    if source_class is None:
        known = "FakeSource, HdfsFile, Iceberg, Jdbc, LocalFile"
        raise Refused(f"this worker has no source {spec.plugin!r}; known are {known}")
    return source_class(spec.name, setting)


def make_sink(spec: PluginSpec, setting: Setting) -> Sink:
    sink_class = _SINKS.get(spec.plugin.lower())
    if sink_class is None:
        known = "Assert, Console, HdfsFile, Iceberg, InMemory, Jdbc, LocalFile"
        raise Refused(f"this worker has no sink {spec.plugin!r}; known are {known}")
    return sink_class(spec.name, setting)
