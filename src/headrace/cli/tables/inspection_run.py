"""One inspection of a catalog: a Spark of its own that is gone afterwards, and its progress."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.cli.context import Context
from headrace.cli.jobs.watch import DESCRIPTION_MAX, PLAIN_EVERY_S
from headrace.cli.serve import warehouse_uri
from headrace.clock import Clock, SystemClock
from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.inspection.report import CatalogReport
from headrace.inspection.survey import InspectionWish, inspect_catalog
from headrace.inspection.text import plain
from headrace.lake.catalog import CatalogConfig
from headrace.lake.iceberg.catalogs import (
    EMBEDDED_TYPE,
    catalog_config,
    embedded_catalog,
    local_path,
)
from headrace.worker.warm_session import start_spark

# Opening a JDBC catalog creates its tables where there are none; an inspection changes nothing.
_NO_TABLES_MADE = {"jdbc.init-catalog-tables": "false"}


@dataclass(frozen=True, slots=True)
class InspectionRequest:
    catalog: str
    type: str
    properties: Mapping[str, str] = field(repr=False)  # may hold passwords
    filter: re.Pattern[str] | None
    warehouse: str | None
    spark_master: str
    conf: Mapping[str, str] = field(repr=False)


def run(cli: Context, request: InspectionRequest, settings: Settings) -> CatalogReport:
    wish = InspectionWish(request.type, catalog_of(request, settings), request.filter)
    clock = SystemClock()
    with (
        _InspectionDisplay(cli.stderr(), clock).open() as shown,
        tempfile.TemporaryDirectory(prefix="headrace-inspect-") as folder,
    ):
        shown.doing("starting Spark")
        embedded = wish.config.properties["warehouse"] if request.type == EMBEDDED_TYPE else None
        warm = start_spark(
            settings,
            warehouse=embedded or (Path(folder) / "none").as_uri(),
            master=request.spark_master,
            conf=request.conf,
            name="headrace inspect",
            scratch=Path(folder),
            log_file=None if cli.verbose else Path(folder) / "spark.log",
            say=shown.doing,
        )
        is_complete = False
        # pyspark's own handler would first have the JVM cancel jobs; here the JVM is ended.
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            shown.doing(f"listing the tables of {plain(request.catalog)}")
            report = inspect_catalog(warm, wish, clock, shown.tables)
            is_complete = True
        finally:
            warm.stop(at_once=not is_complete)
            signal.signal(signal.SIGINT, previous)
    return report


def catalog_of(request: InspectionRequest, settings: Settings) -> CatalogConfig:
    """The catalog to inspect, which must exist when it is the embedded one."""
    if request.type != EMBEDDED_TYPE:
        made = (
            {**_NO_TABLES_MADE, **request.properties}
            if request.type == "jdbc"
            else request.properties
        )
        config = catalog_config(request.catalog, request.type, made, warehouse="")
        return replace(config, set_by="its --type and --property")
    if request.properties:
        raise BadSetting(
            "the embedded catalog takes no --property: --warehouse or --home says where it lies; "
            "for another catalog give its --type"
        )
    warehouse = warehouse_uri(request.warehouse or str(settings.home / "warehouse"))
    folder = local_path(warehouse)
    if folder is None or not (folder / "catalog.db").is_file():
        raise BadSetting(
            f"there is no embedded warehouse at {folder or warehouse}: a first `headrace run` "
            "makes one; name another with --home or --warehouse, or another catalog with --type"
        )
    return embedded_catalog(warehouse)


class _InspectionDisplay:
    """A bar in a terminal; elsewhere a line at each step, and every few seconds."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._began_s = self._shown_at_s = clock.monotonic_s()
        self._bar: Progress | None = None

    @contextmanager
    def open(self) -> Generator[_InspectionDisplay]:
        if not self._console.is_terminal:
            yield self
            return
        parts = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
        more = (MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*parts, *more, console=self._console, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("", total=None)
            yield self

    def doing(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text[:DESCRIPTION_MAX])
        else:
            self._line(text)

    def tables(self, number: int, of: int, reading: Sequence[str]) -> None:
        """`reading`: the names of tables that are being read, the longest read first."""
        text = f"reading {plain(reading[0])}" if reading else "reading"
        if self._bar is not None:
            described = text[:DESCRIPTION_MAX]
            self._bar.update(self._task, description=described, completed=number, total=of)
        elif number == of or self._clock.monotonic_s() - self._shown_at_s >= PLAIN_EVERY_S:
            self._line(f"{number:,} of {of:,} tables" + (f", {text}" if reading else ""))

    def _line(self, text: str) -> None:
        self._shown_at_s = self._clock.monotonic_s()
        elapsed_s = self._shown_at_s - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)
