"""ToyUpper: a transform of Headrace that writes fields in upper case."""

from __future__ import annotations
