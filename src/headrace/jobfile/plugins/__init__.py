"""Declarations of the plugins, without Spark: their options, and checks of these."""

from __future__ import annotations
