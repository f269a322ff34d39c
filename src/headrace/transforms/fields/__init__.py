"""Copy, FieldMapper, FieldRename, Filter, RegexExtract, Replace, Split: from fields to fields."""

from __future__ import annotations
