"""FilterRowKind and RowKindExtractor: which kinds of rows go on, and kinds as a field."""

from __future__ import annotations
