"""What the sources and sinks LocalFile and HdfsFile have in common: where files are, and how they
are written."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.plugins.options import Kind, Option
from headrace.plugins.resolved_options import ResolvedOptions
from headrace.plugins.time_patterns import time_pattern_flaw

FORMATS = ("text", "csv", "json", "parquet", "orc", "excel", "xml", "binary")
ENCODED = frozenset({"text", "csv", "json", "xml"})  # formats whose bytes have an encoding
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "zlib", "lzo")
_NO_CODECS = ("brotli",)


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Where the files are."""

    path: str
    default_fs: str | None  # of HdfsFile: the file system of a path that names none
    site_path: str | None  # a file like hdfs-site.xml


def folder_options(options: ResolvedOptions) -> FolderOptions:
    return FolderOptions(
        path=options.text("path"),
        default_fs=options.optional_text("fs.defaultFS"),
        site_path=options.optional_text("hdfs_site_path"),
    )


def path_flaw(path: str) -> str | None:
    if not urlsplit(path).scheme and not path.startswith("/"):
        return "it must be absolute, since the worker has a folder of its own"
    return None


def _local_flaw(path: str) -> str | None:
    if urlsplit(path).scheme not in {"", "file"}:
        return "it is not local; use HdfsFile"
    return path_flaw(path)


def filename_pattern_flaw(pattern: str) -> str | None:
    if "/" in pattern or "\\" in pattern:
        return "a file's name has no slash"
    return time_pattern_flaw(pattern)


def regex_flaw(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"it is no regular expression: {error}"
    return None


def one_letter_flaw(text: str) -> str | None:
    return None if len(text) <= 1 else "it must be one letter, or empty for none"


def tag_flaw(tag: str) -> str | None:
    if re.fullmatch(r"[^\W\d][\w.-]*", tag):
        return None
    return "it is no name of an XML element"


def _encoding_flaw(name: str) -> str | None:
    try:
        codecs.lookup(name)
    except LookupError:
        return "there is no such encoding"
    if "\n".encode(name) != b"\n":
        return "lines end in other bytes there; known are UTF-8 and those like ASCII, GBK, …"
    return None


def format_option(*, default: str | None, not_built: tuple[str, ...]) -> Option:
    return Option(
        "file_format_type",
        Kind.STRING,
        default,
        required=default is None,
        choices=(*FORMATS, *not_built),
        supported=FORMATS,
        doc="the format of the files.",
    )


def not_built(*names: str, why: str = "is not built yet") -> tuple[Option, ...]:
    return tuple(Option(name, Kind.JSON, supported=(), unsupported=why) for name in names)


def delimiter_option(doc: str) -> Option:
    return Option("field_delimiter", Kind.STRING, aliases=("delimiter",), doc=doc)


def codec_option(doc: str) -> Option:
    return Option(
        "compress_codec",
        Kind.STRING,
        "none",
        choices=(*CODECS, *_NO_CODECS),
        supported=CODECS,
        unsupported="is not built: Spark has no such codec",
        doc=doc,
    )


ENCODING = Option(
    "encoding",
    Kind.STRING,
    "UTF-8",
    doc="Of text, csv, json and xml. Bytes that are no text in it are read as U+FFFD.",
    flaw=_encoding_flaw,
)
HADOOP = (
    Option(
        "fs.defaultFS",
        Kind.STRING,
        required=True,
        doc="the file system, e.g. `hdfs://namenode:8020`; a sink needs hdfs or file.",
    ),
    Option("hdfs_site_path", Kind.STRING, doc="A file like hdfs-site.xml, on the worker."),
    *(
        Option(
            name,
            Kind.STRING,
            supported=(),
            unsupported="is not built yet; start the worker as that user, with its ticket",
        )
        for name in ("remote_user", "kerberos_principal", "kerberos_keytab_path", "krb5_path")
    ),
)


def path_option(doc: str, *, local: bool) -> Option:
    flaw = _local_flaw if local else path_flaw
    return Option("path", Kind.STRING, required=True, doc=doc, flaw=flaw)
