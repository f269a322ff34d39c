"""Where the model of a lake stands in for Iceberg and Spark: by the names that the worker knows."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation import lake_commits, lake_formats

_WORKER = "headrace.worker.tables."
STAND_INS: Mapping[str, object] = {
    _WORKER + "runner.task_session": lake_formats.task_session,
    _WORKER + "work.load_table": lake_formats.load_table,
    _WORKER + "catalogs.list_namespaces": lake_formats.list_namespaces,
    _WORKER + "discovering.list_tables": lake_formats.list_tables,
    _WORKER + "evaluating.probe": lake_formats.probe,
    _WORKER + "evaluating.scan": lake_formats.scan,
    _WORKER + "planning.probe": lake_formats.probe,
    _WORKER + "planning.scan": lake_formats.scan,
    _WORKER + "rewriting.choose": lake_formats.choose,
    _WORKER + "rewriting.look": lake_commits.look,
    _WORKER + "rewriting.rewrite": lake_formats.rewrite,
    _WORKER + "committing.look_replaced": lake_commits.look_replaced,
    _WORKER + "committing.replace": lake_commits.replace,
    _WORKER + "committing.give_up": lake_commits.give_up,
    _WORKER + "committing.discard": lake_commits.discard,
    _WORKER + "committing.unclaimed": lake_commits.unclaimed,
}
