"""The plugins' declarations, one file each."""

from __future__ import annotations
