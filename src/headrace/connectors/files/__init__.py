"""Connectors for files in a folder: LocalFile and HdfsFile, as sources and exactly-once sinks."""

from __future__ import annotations
