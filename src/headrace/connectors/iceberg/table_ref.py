"""The table that the options of the Iceberg source and sink name, in its catalog.

A job that names no catalog of its own uses the embedded one, `headrace`.
"""

from __future__ import annotations

from headrace.connectors.iceberg.descriptor import IcebergTableOptions
from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import CatalogConfig, TableRef, embedded_catalog


def table_ref(title: str, options: IcebergTableOptions, *, warehouse: str) -> TableRef:
    """`title`: the plug-in, for people. `warehouse`: that of the embedded catalog."""
    if not options.table:
        raise Refused(f"{title} needs the option 'table'")
    catalog = _catalog(title, options, warehouse)
    return TableRef(catalog, tuple(options.namespace.split(".")), options.table)


def _catalog(title: str, options: IcebergTableOptions, warehouse: str) -> CatalogConfig:
    if not options.catalog_config:
        if options.catalog_name not in {None, "", "headrace"}:
            raise Refused(
                f"{title} names the catalog {options.catalog_name!r} without "
                "'iceberg.catalog.config'; add it, or leave both out to use the embedded catalog"
            )
        return embedded_catalog(warehouse)
    # SeaTunnel uses Iceberg's own names for catalog classes, so nothing has to be translated.
    return CatalogConfig(
        options.catalog_name or "iceberg",
        dict(options.catalog_config),
        dict(options.hadoop_config),
    )
