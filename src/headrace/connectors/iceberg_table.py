"""Which table of which catalog a job means: options that the source and the sink share.

Without a catalog of its own a job speaks of the embedded one, `headrace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headrace.connectors.connector import Setting
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import CatalogConfig, TableRef, embedded_catalog


def table_ref(title: str, setting: Setting) -> TableRef:
    options = setting.options
    table = options.get("table")
    if not table:
        raise Refused(f"{title} needs the option 'table'")
    namespace = tuple(str(options.get("namespace") or "default").split("."))
    return TableRef(_catalog(title, setting), namespace, str(table))


def _catalog(title: str, setting: Setting) -> CatalogConfig:
    options = setting.options
    properties = texts(options.get("iceberg.catalog.config"))
    if not properties:
        if options.get("catalog_name") not in {None, "", "headrace"}:
            raise Refused(
                f"{title} names the catalog {options['catalog_name']!r} without "
                "'iceberg.catalog.config'; add it, or leave both out to use the embedded catalog"
            )
        return embedded_catalog(setting.warehouse)
    # SeaTunnel's word for a catalog class is Iceberg's own, so nothing has to be translated.
    return CatalogConfig(
        str(options.get("catalog_name") or "iceberg"),
        properties,
        texts(options.get("hadoop.config")),
    )


def texts(value: Any) -> dict[str, str]:
    given = cast("Mapping[str, Any]", value or {})
    return {
        key: str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in given.items()
    }
