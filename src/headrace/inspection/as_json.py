"""The report for programs: every value of it, with what is worked out from others beside them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headrace.inspection.report import CatalogReport, Inspected, Saving


def as_json(report: CatalogReport) -> dict[str, Any]:
    told = asdict(report)
    totals = report.totals
    told["totals"] = {
        **asdict(totals),
        "small_share": round(totals.small_share, 4),
        "saving": _saving(totals.saving),
    }
    told["tables"] = [_table(table) for table in report.tables]
    return told


def _table(table: Inspected) -> dict[str, Any]:
    needs = [{**asdict(need), "saving": _saving(need.saving)} for need in table.most_in_need]
    return {**asdict(table), "saving": _saving(table.saving), "most_in_need": needs}


def _saving(saving: Saving) -> dict[str, Any]:
    worked_out = {
        "files_saved": saving.files_saved,
        "bytes_saved": saving.bytes_saved,
        "benefit": round(saving.benefit, 4),
    }
    return {**asdict(saving), **worked_out}
