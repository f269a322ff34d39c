"""Tests. Where each kind lives: CONTRIBUTING.md."""

from __future__ import annotations
