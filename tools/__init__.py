"""What `make` runs beside the usual tools. Not part of the package."""

from __future__ import annotations
