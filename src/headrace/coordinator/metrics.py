"""What a coordinator counts, for Prometheus. One registry a coordinator, none global."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge(
            "headrace_leading", "1 while this coordinator leads", registry=self.registry
        )
        self.term = Gauge(
            "headrace_term",
            "The leader's term as this coordinator last saw it",
            registry=self.registry,
        )
        self.sync_batch = Histogram(
            "headrace_sync_batch",
            "Syncs answered in one transaction",
            buckets=BATCH_BUCKETS,
            registry=self.registry,
        )
        self.sync_seconds = Histogram(
            "headrace_sync_transaction_seconds",
            "Time of one such transaction",
            registry=self.registry,
        )
        self.redeploys = Counter(
            "headrace_redeploys",
            "Assignments said again, because their worker had not seen the first answer",
            registry=self.registry,
        )
        self.executions_stuck = Counter(
            "headrace_executions_stuck",
            "Executions given up because they stood still, or did not complete a commit in time",
            registry=self.registry,
        )
        self.reconcile_failures = Counter(
            "headrace_reconcile_failures",
            "Objects whose reconciling raised",
            registry=self.registry,
        )
        self._count_launches()
        self._count_connections()

    def _count_connections(self) -> None:
        self.connections = Gauge(
            "headrace_connections", "Connections that are open", registry=self.registry
        )
        self.connections_refused = Counter(
            "headrace_connections_refused",
            "Connections closed because there were too many",
            registry=self.registry,
        )
        self.slow_clients = Counter(
            "headrace_slow_clients",
            "Connections closed because a request, or the taking of an answer, took too long",
            registry=self.registry,
        )

    def _count_launches(self) -> None:
        self.restarts = Counter(
            "headrace_resource_restarts",
            "Resources that were started again, because they had no worker any more",
            registry=self.registry,
        )
        self.launch_failures = Counter(
            "headrace_launch_failures",
            "Starts of resources that their container refused, or could not do",
            registry=self.registry,
        )
        self.given_up = Counter(
            "headrace_resources_given_up",
            "Resources whose record went, since no restart brought a worker",
            registry=self.registry,
        )
