"""A group's properties are of two kinds, told apart by their names: what its container understands,
and what its tables have when neither they nor their catalog say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLE_PREFIX = "self-optimizing."


def table_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """What the tables of the group have by default."""
    return {name: value for name, value in properties.items() if name.startswith(TABLE_PREFIX)}


def launch_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """What a container is told for each launch."""
    return {name: value for name, value in properties.items() if not name.startswith(TABLE_PREFIX)}
