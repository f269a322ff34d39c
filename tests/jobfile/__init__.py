"""Job files: how they are read, and what is said about bad ones."""

from __future__ import annotations
