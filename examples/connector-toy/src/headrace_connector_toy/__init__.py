"""ToySqlite: tables of a SQLite file, as a source and as a sink of Headrace."""

from __future__ import annotations
