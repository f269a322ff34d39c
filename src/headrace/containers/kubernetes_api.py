"""The few calls of Kubernetes that are used, and the official client behind them.

What goes in and comes out is the JSON of the API. The client is an extra and loads slowly, so it
is imported when a container of that kind is made, and not before.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from headrace.containers.kubernetes_files import Json, check_kube_config, imported
from headrace.errors import BadSetting, HeadraceError, Refused, Unavailable
from headrace.model.redaction import redacted

REQUEST_TIMEOUT_S = 15.0  # of one call, which is not repeated here
CONFLICT, NOT_FOUND, BAD_REQUEST = 409, 404, 400
_WAYS_OUT = {
    401: "renew the credentials in the kubeconfig",
    403: "give its user or service account the right to do so (RBAC)",
    404: "see that the namespace exists",
}


class KubernetesApi(Protocol):
    """Each call raises kubernetes' own ApiException, or urllib3's HTTPError without an answer."""

    def create_namespaced_deployment(self, namespace: str, body: Json) -> Json: ...

    def read_namespaced_deployment(self, name: str, namespace: str) -> Json: ...

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        """Its pods are deleted by the cluster, afterwards."""
        ...

    def list_namespaced_pod(self, namespace: str, *, label_selector: str) -> list[Json]: ...

    def read_namespaced_pod_log(
        self, name: str, namespace: str, *, container: str, tail_lines: int, previous: bool
    ) -> str: ...


class OfficialClient:
    def __init__(self, kube_config: Path | None, *, place: str) -> None:
        """`kube_config`: or the service account of our own pod, or ~/.kube/config."""
        self._client = imported("kubernetes.client", place=place)
        config = imported("kubernetes.config", place=place)
        made: Any = self._client.ApiClient(_configuration(config, kube_config, place=place))
        self._sanitize = made.sanitize_for_serialization
        self._apps: Any = self._client.AppsV1Api(made)
        self._core: Any = self._client.CoreV1Api(made)

    def create_namespaced_deployment(self, namespace: str, body: Json) -> Json:
        return self._sanitize(
            self._apps.create_namespaced_deployment(
                namespace, body, _request_timeout=REQUEST_TIMEOUT_S
            )
        )

    def read_namespaced_deployment(self, name: str, namespace: str) -> Json:
        return self._sanitize(
            self._apps.read_namespaced_deployment(
                name, namespace, _request_timeout=REQUEST_TIMEOUT_S
            )
        )

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        self._apps.delete_namespaced_deployment(
            name,
            namespace,
            propagation_policy="Background",
            _request_timeout=REQUEST_TIMEOUT_S,
        )

    def list_namespaced_pod(self, namespace: str, *, label_selector: str) -> list[Json]:
        found = self._core.list_namespaced_pod(
            namespace, label_selector=label_selector, _request_timeout=REQUEST_TIMEOUT_S
        )
        return [self._sanitize(pod) for pod in found.items]

    def read_namespaced_pod_log(
        self, name: str, namespace: str, *, container: str, tail_lines: int, previous: bool
    ) -> str:
        return self._core.read_namespaced_pod_log(
            name,
            namespace,
            container=container,
            tail_lines=tail_lines,
            previous=previous,
            _request_timeout=REQUEST_TIMEOUT_S,
        )


def _configuration(config: Any, kube_config: Path | None, *, place: str) -> Any:
    made: Any = importlib.import_module("kubernetes.client").Configuration()
    default = Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser()
    path = kube_config or (default if default.exists() else None)
    if path is not None:
        check_kube_config(path, place=place)
    try:
        if path is not None:
            config.load_kube_config(str(path), client_configuration=made)
        else:
            config.load_incluster_config(client_configuration=made)
    # The client looks into what it reads without asking what it is: a number as a certificate.
    except (config.ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
        told = f"kubeconfig {path}: " if path is not None else ""
        raise BadSetting(
            f"{place}: Kubernetes can not be reached: {told}{redacted(str(error))}; set "
            "kube-config-path to a kubeconfig that kubectl takes, or run the coordinator in a pod "
            "with a service account"
        ) from error
    # By itself urllib3 would ask three times more, and so take four times REQUEST_TIMEOUT_S.
    made.retries = False
    return made


def failures() -> tuple[type[Exception], ...]:
    """What a call of the API raises: an answer that says no, and no answer."""
    answered = importlib.import_module("kubernetes.client.exceptions").ApiException
    return answered, importlib.import_module("urllib3.exceptions").HTTPError


def status_of(error: Exception) -> int | None:
    """The HTTP status of an answer; None without one."""
    return getattr(error, "status", None) or None


def explained(error: Exception, what: str) -> HeadraceError:
    """An error of the API as ours, with what the server said and the way out."""
    status = status_of(error)
    said = message_of(error)
    if status is None or status >= 500 or status == 429:
        return Unavailable(f"{what}: Kubernetes did not answer as it should: {said}")
    way_out = _WAYS_OUT.get(status, "mend what it names")
    return Refused(f"{what}: Kubernetes refused with {status}: {said}; {way_out}")


def message_of(error: Exception) -> str:
    """What the server said, out of the Status that it answers with."""
    body = getattr(error, "body", None)
    try:
        told: Any = json.loads(body) if isinstance(body, str | bytes) else None
    except ValueError:  # a proxy in between answers as it likes
        told = None
    if isinstance(told, Mapping) and "message" in told:
        return str(told["message"])  # pyright: ignore[reportUnknownArgumentType]
    return str(getattr(error, "reason", None) or error)
