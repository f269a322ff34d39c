"""One inspection: a Spark of its own that is gone afterwards, and a word on how far it is."""

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
from headrace.cli.progress import DESCRIPTION_MAX, PLAIN_EVERY_S
from headrace.cli.serve import warehouse_uri
from headrace.clock import Clock, SystemClock
from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.formats.iceberg.catalogs import CatalogConfig, embedded_catalog, local_path
from headrace.inspection.look import Wanted, look
from headrace.inspection.report import CatalogReport
from headrace.inspection.text import plain
from headrace.protocol.tables import CatalogSpec, OfCatalog
from headrace.worker.spark import start_spark
from headrace.worker.tables.catalogs import EMBEDDED_TYPE, config_of

# Opening a JDBC catalog makes its tables where there are none; who only looks makes nothing.
_NO_TABLES_MADE = {"jdbc.init-catalog-tables": "false"}


@dataclass(frozen=True, slots=True)
class Asked:
    catalog: str
    type: str
    properties: Mapping[str, str] = field(repr=False)  # may hold passwords
    filter: re.Pattern[str] | None
    warehouse: str | None
    spark_master: str
    conf: Mapping[str, str] = field(repr=False)


def run(cli: Context, asked: Asked, settings: Settings) -> CatalogReport:
    wanted = Wanted(asked.type, catalog_of(asked, settings), asked.filter)
    clock = SystemClock()
    with (
        _Shown(cli.stderr(), clock).open() as shown,
        tempfile.TemporaryDirectory(prefix="headrace-inspect-") as folder,
    ):
        shown.doing("starting Spark")
        embedded = wanted.config.properties["warehouse"] if asked.type == EMBEDDED_TYPE else None
        warm = start_spark(
            settings,
            warehouse=embedded or (Path(folder) / "none").as_uri(),
            master=asked.spark_master,
            conf=asked.conf,
            name="headrace inspect",
            scratch=Path(folder),
            log_file=None if cli.verbose else Path(folder) / "spark.log",
            say=shown.doing,
        )
        whole = False
        # pyspark's own handler asks the JVM to cancel jobs first; here it is ended altogether.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            shown.doing(f"listing the tables of {plain(asked.catalog)}")
            report = look(warm, wanted, clock, shown.tables)
            whole = True
        finally:
            warm.stop(at_once=not whole)
            signal.signal(signal.SIGINT, before)
    return report


def catalog_of(asked: Asked, settings: Settings) -> CatalogConfig:
    if asked.type != EMBEDDED_TYPE:
        made = {**_NO_TABLES_MADE, **asked.properties} if asked.type == "jdbc" else asked.properties
        spec = CatalogSpec(name=asked.catalog, type=asked.type, properties=dict(made))
        found = config_of(OfCatalog(catalog=spec), warehouse="")
        return replace(found, set_by="its --type and --property")
    if asked.properties:
        raise BadSetting(
            "the embedded catalog takes no --property: --warehouse or --home says where it lies; "
            "for another catalog give its --type"
        )
    warehouse = warehouse_uri(asked.warehouse or str(settings.home / "warehouse"))
    folder = local_path(warehouse)
    if folder is None or not (folder / "catalog.db").is_file():
        raise BadSetting(
            f"there is no embedded warehouse at {folder or warehouse}: a first `headrace run` "
            "makes one; name another with --home or --warehouse, or another catalog with --type"
        )
    return embedded_catalog(warehouse)


class _Shown:
    """A bar in a terminal; elsewhere a line at each step, and every few seconds."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._began_s = self._told_s = clock.monotonic_s()
        self._bar: Progress | None = None

    @contextmanager
    def open(self) -> Generator[_Shown]:
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
        """`reading`: the names of those that are being read, the longest first."""
        text = f"reading {plain(reading[0])}" if reading else "reading"
        if self._bar is not None:
            described = text[:DESCRIPTION_MAX]
            self._bar.update(self._task, description=described, completed=number, total=of)
        elif number == of or self._clock.monotonic_s() - self._told_s >= PLAIN_EVERY_S:
            self._line(f"{number:,} of {of:,} tables" + (f", {text}" if reading else ""))

    def _line(self, text: str) -> None:
        self._told_s = self._clock.monotonic_s()
        elapsed_s = self._told_s - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)
