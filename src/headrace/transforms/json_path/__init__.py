"""JsonPath: fields from within JSON."""

from __future__ import annotations
