"""Where the model of a lake stands in for Iceberg and Spark: by the names that the worker knows."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation import lake_commits, lake_formats

_WORKER = "headrace.worker.tables."
STAND_INS: Mapping[str, object] = {
    "headrace.worker.runner.task_session": lake_formats.task_session,
    _WORKER + "catalogs.load_table": lake_formats.load_table,
    _WORKER + "catalogs.list_namespaces": lake_formats.list_namespaces,
    _WORKER + "catalogs.list_tables": lake_formats.list_tables,
    _WORKER + "evaluation.probe": lake_formats.probe,
    _WORKER + "evaluation.scan": lake_formats.scan,
    _WORKER + "rewrite.choose": lake_formats.choose,
    _WORKER + "rewrite.look": lake_commits.look,
    _WORKER + "rewrite.rewrite": lake_formats.rewrite,
    _WORKER + "rewrite.look_replaced": lake_commits.look_replaced,
    _WORKER + "rewrite.replace": lake_commits.replace,
    _WORKER + "rewrite.give_up": lake_commits.give_up,
    _WORKER + "rewrite.discard": lake_commits.discard,
    _WORKER + "rewrite.unclaimed": lake_commits.unclaimed,
}
