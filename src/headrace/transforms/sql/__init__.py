"""Sql: one query over the tables it reads."""

from __future__ import annotations
