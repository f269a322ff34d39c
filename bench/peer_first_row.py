"""Peer of `first_row`: a script that starts Spark with the same jars and appends the same rows.

    python -m bench.peer_first_row JARS WAREHOUSE ROWS

Jars by spark.jars, as most scripts name them, already on disk. No UI and loopback only, as with
our worker, so that neither makes the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.peer_demo import COLUMNS, rows


def main(jars: str, warehouse: str, count: int) -> None:
    catalog = "spark.sql.catalog.lake"
    conf = {
        "spark.master": "local[*]",
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{Path(warehouse) / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file:{warehouse}",
    }
    builder: Any = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark: Any = builder.getOrCreate()
    spark.sql("create namespace if not exists lake.demo")
    spark.sql(f"create table if not exists lake.demo.events ({COLUMNS}) using iceberg")
    rows(spark, count=count, partitions=1, incarnation="any").writeTo("lake.demo.events").append()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
