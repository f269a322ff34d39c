"""FieldMapper and Filter: which fields go on, under which names."""

from __future__ import annotations
