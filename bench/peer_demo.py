"""Peer of `demo`: the demo job as somebody would write it by hand, in PySpark.

    python -m bench.peer_demo SPARK_CONF_AS_JSON

Takes one JSON command a line and answers with one, so that its session stays warm as ours does:
write rows to a table, sum up a table, sum up what should be in it, or empty it. It shares nothing
with headrace but the Spark settings it is given; the expressions are written out anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

CATALOG = "headrace"
COLUMNS = (
    "order_id bigint, customer_id int, channel string, amount decimal(12, 2), gift boolean, "
    "ordered_on date, placed_at timestamp_ntz"
)
SOURCE = "FakeSource-1"  # the name that the demo's source has in its job; part of the seed
CHECKSUM_MODULUS = 2**31 - 1  # a sum of so small numbers does not overflow


def rows(spark: SparkSession, *, count: int, partitions: int, incarnation: str) -> DataFrame:
    """Orders: a number, and values that are hashes of seed, row and column, as the job has them."""
    named = f"{incarnation}/{SOURCE}".encode()
    seed = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), signed=True)
    numbers = spark.range(0, count, 1, partitions)
    hashed = numbers.selectExpr("id", f"xxhash64({seed}L, id) as h")
    return hashed.selectExpr(
        "id + 1 as order_id",
        "cast(pmod(xxhash64(h, 'customer_id'), 9999) + 1 as int) as customer_id",
        "upper(get(array('web', 'app', 'shop', 'phone'),"
        " cast(pmod(xxhash64(h, 'channel'), 4) as int))) as channel",
        f"cast(1D + pmod(xxhash64(h, 'amount'), {2**53}L) / {2**53}D * 499D as decimal(12, 2))"
        " as amount",
        "pmod(xxhash64(h, 'gift'), 2) = 0 as gift",
        f"{_date('ordered_on')} as ordered_on",
        f"cast({_date('placed_at')} as timestamp_ntz) + make_dt_interval(0, 0, 0,"
        f" {_part('placed_at#time.hour', 24)} * 3600 + {_part('placed_at#time.minute', 60)} * 60"
        f" + {_part('placed_at#time.second', 60)}) as placed_at",
    )


def _part(path: str, values: int) -> str:
    return f"cast(pmod(xxhash64(h, '{path}'), {values}) as int)"


def _date(column: str) -> str:
    month, day = _part(f"{column}#date.month", 12), _part(f"{column}#date.day", 28)
    return f"make_date(year(current_date()), {month} + 1, {day} + 1)"


def facts(frame: DataFrame) -> dict[str, Any]:
    """Count, and for each column and for whole rows a sum and an xor of hashes.

    Equal facts mean the same rows, whatever their order; a row that is there twice shows in the
    count and the sum.
    """
    hashes = {name: f"xxhash64({name})" for name in frame.columns}
    hashes["whole_row"] = f"xxhash64({', '.join(frame.columns)})"
    wanted = ["count(*) as rows"]
    for name, value in hashes.items():
        wanted.append(f"sum(pmod({value}, {CHECKSUM_MODULUS}L)) as {name}_sum")
        wanted.append(f"bit_xor({value}) as {name}_xor")
    return frame.selectExpr(*wanted).collect()[0].asDict()


def answer(spark: Any, asked: dict[str, Any]) -> dict[str, Any]:
    table = f"{CATALOG}.{asked.get('table')}"
    match asked["do"]:
        case "create":
            spark.sql(f"create namespace if not exists {CATALOG}.demo")
            spark.sql(f"create table if not exists {table} ({COLUMNS}) using iceberg")
            return {}
        case "write":
            made = rows(
                spark,
                count=asked["rows"],
                partitions=asked["partitions"],
                incarnation=asked["incarnation"],
            )
            made.writeTo(table).append()
            return {}
        case "facts":
            return facts(spark.table(table))
        case "expected":
            made = rows(
                spark,
                count=asked["rows"],
                partitions=asked["partitions"],
                incarnation=asked["incarnation"],
            )
            return facts(made)
        case "empty":
            spark.sql(f"delete from {table}")
            return {}
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def commands() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main(conf: dict[str, str]) -> None:
    builder: Any = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark: Any = builder.getOrCreate()
    print(json.dumps({"ready": True}), flush=True)
    for asked in commands():
        print(json.dumps(answer(spark, asked)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
