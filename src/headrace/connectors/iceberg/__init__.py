"""The Iceberg connector: a source, and a sink that commits exactly once."""

from __future__ import annotations
