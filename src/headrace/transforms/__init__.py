"""Transforms: each makes one table of rows from the tables it reads (DataFrame → DataFrame)."""

from __future__ import annotations
