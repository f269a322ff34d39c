"""How a worker reaches a catalog, from what its task tells."""

from __future__ import annotations

import pytest

from headrace.errors import Refused
from headrace.lake.catalog import CatalogConfig
from headrace.lake.iceberg.catalogs import TYPES
from headrace.protocol.tables import CatalogSpec, OfCatalog
from headrace.worker.tables.registry import config_of, format_of


def told(kind: str, secrets: dict[str, str] | None = None, **properties: str) -> OfCatalog:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    spec = CatalogSpec(name="sales", type=kind, properties=named)
    return OfCatalog(catalog=spec, secrets=dict(secrets or {}))


def config(payload: OfCatalog, warehouse: str = "file:/unused") -> CatalogConfig:
    return config_of(payload, format_of(payload.catalog), warehouse=warehouse)


def test_the_embedded_catalog_lies_in_the_workers_own_warehouse() -> None:
    made = config(
        OfCatalog(catalog=CatalogSpec(name="headrace", type="embedded")), "file:/srv/warehouse"
    )

    assert (made.name, made.properties["type"]) == ("headrace", "jdbc")
    assert made.properties["warehouse"] == "file:/srv/warehouse"
    assert "--warehouse" in made.set_by


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_is_icebergs_own_word(kind: str) -> None:
    made = config(told(kind, uri="thrift://here"))

    assert dict(made.properties) == {"type": kind, "uri": "thrift://here"}
    assert made.hadoop == {}
    assert "`headrace catalog show sales`" in made.set_by


def test_a_class_of_its_own_takes_the_place_of_the_type() -> None:
    made = config(told("rest", catalog_impl="org.example.Catalog"))

    assert dict(made.properties) == {"catalog-impl": "org.example.Catalog"}


def test_secrets_come_back_to_their_places_and_hadoops_settings_to_hadoop() -> None:
    made = config(
        told(
            "jdbc",
            {"sales.jdbc.password": "s3cr3t", "sales.hadoop.fs.s3a.secret.key": "k3y"},
            jdbc__password="******",
            hadoop__fs__s3a__secret__key="******",
            hadoop__fs__s3a__endpoint="http://here",
        ),
    )

    assert dict(made.properties) == {"type": "jdbc", "jdbc.password": "s3cr3t"}
    assert dict(made.hadoop) == {"fs.s3a.secret.key": "k3y", "fs.s3a.endpoint": "http://here"}
    assert "s3cr3t" not in repr(made)


def test_a_secret_that_nobody_knows_is_named_with_the_way_out() -> None:
    with pytest.raises(Refused, match=r"catalog set sales --property jdbc\.password="):
        config(told("jdbc", jdbc__password="******"))
