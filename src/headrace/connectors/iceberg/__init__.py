"""The Iceberg connector: source, sink, and the options by which both name a table and its catalog.

A job that names no catalog of its own uses the embedded one, `headrace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headrace.connectors.connector import Setting
from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import CatalogConfig, TableRef, embedded_catalog


def table_ref(title: str, setting: Setting) -> TableRef:
    options = setting.options
    table = options.get("table")
    if not table:
        raise Refused(f"{title} needs the option 'table'")
    namespace = tuple(str(options.get("namespace") or "default").split("."))
    return TableRef(_catalog(title, setting), namespace, str(table))


def _catalog(title: str, setting: Setting) -> CatalogConfig:
    options = setting.options
    properties = string_properties(options.get("iceberg.catalog.config"))
    if not properties:
        if options.get("catalog_name") not in {None, "", "headrace"}:
            raise Refused(
                f"{title} names the catalog {options['catalog_name']!r} without "
                "'iceberg.catalog.config'; add it, or leave both out to use the embedded catalog"
            )
        return embedded_catalog(setting.warehouse)
    # SeaTunnel uses Iceberg's own names for catalog classes, so nothing has to be translated.
    return CatalogConfig(
        str(options.get("catalog_name") or "iceberg"),
        properties,
        string_properties(options.get("hadoop.config")),
    )


def string_properties(value: Any) -> dict[str, str]:
    """An option that is a map, with its values as the texts that Iceberg takes."""
    properties = cast("Mapping[str, Any]", value or {})
    return {
        key: str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in properties.items()
    }
