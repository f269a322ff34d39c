"""Descriptors of the sources and sinks LocalFile and HdfsFile.

They share one set of options; HdfsFile has some more.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from headrace.connectors.files import sink_options, source_options
from headrace.connectors.files.options import HADOOP, path_option
from headrace.connectors.files.sink_options import SINK, FileSinkOptions, read_sink_options
from headrace.connectors.files.source_options import (
    SOURCE,
    FileSourceOptions,
    read_source_options,
    streaming_flaw,
)
from headrace.plugins.descriptor import Capabilities, Descriptor, Guarantee, TargetKey
from headrace.plugins.options import Option, OptionSet
from headrace.plugins.save_modes import SAVE_MODES_WITHOUT_CUSTOM

_SOURCE_CLASS = "headrace.connectors.files.source:FileSource"
_SINK_CLASS = "headrace.connectors.files.sink:FileSink"


def _target_key(options: FileSinkOptions) -> TargetKey:
    path = urlsplit(options.folder.path)
    system = path if path.scheme else urlsplit(options.folder.default_fs or "file:")
    return ("files", system.scheme, system.netloc, *(part for part in path.path.split("/") if part))


def _source(name: str, *options: Option) -> Descriptor[FileSourceOptions]:
    return Descriptor(
        name=name,
        role="source",
        make=_SOURCE_CLASS,
        doc="Reads files of text, csv, json, parquet, orc, excel and xml, or whole files as they "
        "are, also in archives. In streaming mode it reads what is there and then what arrives, "
        "each file once, five seconds after it was last written to "
        "(how-to/read-files-as-they-arrive.md).",
        options=OptionSet((*options, *SOURCE)),
        read_options=read_source_options,
        streaming_flaw=streaming_flaw,
        capabilities=Capabilities(
            guarantee=Guarantee.EXACTLY_ONCE,
            how="a slice lists its files with sizes and times of modification; one that has "
            "changed since is refused",
        ),
    )


def _sink(name: str, doc: str, *options: Option) -> Descriptor[FileSinkOptions]:
    return Descriptor(
        name=name,
        role="sink",
        make=_SINK_CLASS,
        doc=doc,
        options=OptionSet((*options, *SINK)),
        read_options=read_sink_options,
        target_key=_target_key,
        capabilities=Capabilities(
            guarantee=Guarantee.EXACTLY_ONCE,
            how="files are written below a hidden folder of the target; creating a manifest that "
            "must not exist yet is the commit, and anyone can finish its renames",
            save_modes=SAVE_MODES_WITHOUT_CUSTOM,
        ),
    )


LOCAL_FILE_SOURCE = _source("LocalFile", path_option(source_options.PATH_DOC, local=True))
HDFS_FILE_SOURCE = _source("HdfsFile", path_option(source_options.PATH_DOC, local=False), *HADOOP)
LOCAL_FILE_SINK = _sink(
    "LocalFile",
    "Writes files to a folder of the worker's machine, exactly once.",
    path_option(sink_options.PATH_DOC, local=True),
)
HDFS_FILE_SINK = _sink(
    "HdfsFile",
    "Writes files to HDFS, exactly once. Excel and binary are written to local folders only.",
    path_option(sink_options.PATH_DOC, local=False),
    *HADOOP,
)
DESCRIPTORS = (LOCAL_FILE_SOURCE, HDFS_FILE_SOURCE, LOCAL_FILE_SINK, HDFS_FILE_SINK)
