"""A kind of container for Headrace: workers in Docker."""

from __future__ import annotations
