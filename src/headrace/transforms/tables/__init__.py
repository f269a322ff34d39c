"""Metadata, TableFilter, TableMerge, TableRename: what depends on the names of tables."""

from __future__ import annotations
