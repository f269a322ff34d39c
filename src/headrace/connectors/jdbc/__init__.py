"""Any database with a JDBC driver, as a source and as a sink that commits exactly once."""

from __future__ import annotations
