"""DataValidator: rules that the fields of each row must keep."""

from __future__ import annotations
