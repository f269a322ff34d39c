"""A whole catalog that nobody knew is read, one broken table and all, and nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.tables import inspection_run
from headrace.clock import SystemClock
from headrace.errors import Refused, Unavailable
from headrace.inspection.survey import InspectionWish, inspect_catalog
from headrace.lake.catalog import CatalogConfig
from headrace.worker.warm_session import WarmSpark
from tests.spark.lake import session_range, sql
from tests.spark.written import MERGE_ON_READ

CATALOG = "strange"
SECRET = "hunter2-and-more"


class Strange:
    """A Hadoop catalog of somebody else's, written by plain Spark."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        named = f"spark.sql.catalog.{CATALOG}"
        session.conf.set(named, "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set(f"{named}.type", "hadoop")
        session.conf.set(f"{named}.warehouse", folder.as_uri())
        self.small("sales.orders", commits=14, properties=MERGE_ON_READ)
        sql(session, f"DELETE FROM {CATALOG}.sales.orders WHERE id = 3")
        self.small("sales.customers", commits=1)
        flawed = {"self-optimizing.target-size": "large", "self-optimizing.filter": "nope = 1"}
        self.small("web.raw.clicks", commits=2, properties=flawed)
        self.small("web.broken", commits=1)
        for metadata in (folder / "web/broken/metadata").glob("v*.metadata.json"):
            metadata.write_text('{"format-version": 2, "table-')
        for checked in (folder / "web/broken/metadata").glob(".v*.crc"):
            checked.unlink()

    def small(self, table: str, *, commits: int, properties: dict[str, str] | None = None) -> None:
        name = f"{CATALOG}.{table}"
        told = ", ".join(f"'{key}'='{value}'" for key, value in (properties or {}).items())
        settings = f"TBLPROPERTIES ({told})" if told else ""
        sql(self.session, f"CREATE TABLE {name} (id bigint) USING iceberg {settings}")
        for number in range(commits):
            made = session_range(self.session, number * 10, number * 10 + 10).coalesce(1)
            made.writeTo(name).append()

    def files(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in self.folder.rglob("*")}

    @property
    def config(self) -> CatalogConfig:
        properties = {"type": "hadoop", "warehouse": self.folder.as_uri(), "token": SECRET}
        return CatalogConfig(CATALOG, properties)


@pytest.fixture
def strange(session: SparkSession, tmp_path: Path) -> Strange:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return Strange(session, folder)


def unseen(number: int, of: int, reading: Sequence[str]) -> None:
    """Nobody watches."""


def run(warm: WarmSpark, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """The command, with the session that is there already."""

    def stop(*, at_once: bool) -> None:
        """It is not ours to stop."""

    def started(*_: object, **__: object) -> Any:
        return SimpleNamespace(session=warm.session, alive=warm.alive, stop=stop)

    monkeypatch.setattr(inspection_run, "start_spark", started)
    return CliRunner().invoke(app, ["inspect", *arguments])


def test_a_whole_catalog_is_read_and_a_broken_table_stops_no_other(
    warm: WarmSpark, strange: Strange, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, page = strange.files(), tmp_path / "page.html"
    reached = ("--type", "hadoop", "--property", f"warehouse={strange.folder.as_uri()}")
    secret = ("--property", f"token={SECRET}")

    done = run(warm, monkeypatch, CATALOG, *reached, *secret, "--html", str(page))

    assert done.exit_code == 1, done.output
    assert re.search(r"tables +3; 1 could not be read", done.output)
    assert re.search(r"sales\.orders .* 14 → 1 .*MINOR", done.output)
    assert "web.broken: " in done.output
    assert "its metadata is damaged" in done.output
    assert "self-optimizing.target-size is 'large'" in done.output
    assert "self-optimizing.filter" in done.output
    html = page.read_text(encoding="utf-8")
    assert "web.raw.clicks" in html
    assert SECRET not in html + done.output
    assert strange.files() == before, "looking changes nothing"


def test_json_tells_the_same_and_a_filter_leaves_out_the_rest(
    warm: WarmSpark, strange: Strange, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = ("--type", "hadoop", "--property", f"warehouse={strange.folder.as_uri()}")

    done = run(warm, monkeypatch, CATALOG, *reached, "--filter", r"sales\..*", "--output", "json")

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [table["table"] for table in told["tables"]] == ["sales.orders", "sales.customers"]
    orders = told["tables"][0]
    assert (orders["deletes"]["position"], orders["deletes"]["dangling"]) == (1, 0)
    assert (orders["snapshots"]["count"], orders["saving"]["files_after"]) == (15, 1)
    assert (told["filtered"], told["unread"]) == (2, [])


def test_a_catalog_that_is_away_is_told_without_its_secrets(warm: WarmSpark) -> None:
    uri = f"jdbc:postgresql://127.0.0.1:1/lake?user=me&password={SECRET}"
    config = CatalogConfig("away", {"type": "jdbc", "uri": uri, "warehouse": "file:/nowhere"})

    with pytest.raises((Refused, Unavailable), match="'away'") as raised:
        inspect_catalog(warm, InspectionWish("jdbc", config), SystemClock(), unseen)

    assert SECRET not in str(raised.value)
