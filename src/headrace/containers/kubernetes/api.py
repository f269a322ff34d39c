"""The few calls of the Kubernetes API that are used, and the official client behind them.

What goes in and comes out is the JSON of the API. The client is an extra and loads slowly, so it
is imported only when a container of this kind is made.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from headrace.containers.kubernetes.manifest import Json, check_kube_config, import_extra
from headrace.errors import BadSetting, HeadraceError, Refused, Unavailable
from headrace.model.text import redacted

REQUEST_TIMEOUT_S = 15.0  # of one call; nothing is retried here
CONFLICT, NOT_FOUND, BAD_REQUEST = 409, 404, 400
_WAYS_OUT = {
    401: "renew the credentials in the kubeconfig",
    403: "give its user or service account the right to do so (RBAC)",
    404: "see that the namespace exists",
}


class KubernetesApi(Protocol):
    """Each call raises ApiException of kubernetes, or HTTPError of urllib3 without an answer."""

    def create_namespaced_deployment(self, namespace: str, body: Json) -> Json: ...

    def read_namespaced_deployment(self, name: str, namespace: str) -> Json: ...

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        """The cluster deletes its pods afterwards."""
        ...

    def list_namespaced_pod(self, namespace: str, *, label_selector: str) -> list[Json]: ...

    def read_namespaced_pod_log(
        self, name: str, namespace: str, *, container: str, tail_lines: int, previous: bool
    ) -> str: ...


class OfficialClient:
    """The `KubernetesApi` of the official client."""

    def __init__(self, kube_config: Path | None, *, place: str) -> None:
        """Without `kube_config`, ~/.kube/config is used if it exists, else the service account of
        the pod that this process runs in."""
        self._client = import_extra("kubernetes.client", place=place)
        config = import_extra("kubernetes.config", place=place)
        api_client: Any = self._client.ApiClient(_configuration(config, kube_config, place=place))
        self._sanitize = api_client.sanitize_for_serialization
        self._apps: Any = self._client.AppsV1Api(api_client)
        self._core: Any = self._client.CoreV1Api(api_client)

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
        pods = self._core.list_namespaced_pod(
            namespace, label_selector=label_selector, _request_timeout=REQUEST_TIMEOUT_S
        )
        return [self._sanitize(pod) for pod in pods.items]

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
    configuration: Any = importlib.import_module("kubernetes.client").Configuration()
    default = Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser()
    path = kube_config or (default if default.exists() else None)
    if path is not None:
        check_kube_config(path, place=place)
    try:
        if path is not None:
            config.load_kube_config(str(path), client_configuration=configuration)
        else:
            config.load_incluster_config(client_configuration=configuration)
    # The client does not check the types of what it reads, such as a number as a certificate.
    except (config.ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
        source = f"kubeconfig {path}: " if path is not None else ""
        raise BadSetting(
            f"{place}: Kubernetes can not be reached: {source}{redacted(str(error))}; set "
            "kube-config-path to a kubeconfig that kubectl takes, or run the coordinator in a pod "
            "with a service account"
        ) from error
    # By default urllib3 retries three times, and so takes four times REQUEST_TIMEOUT_S.
    configuration.retries = False
    return configuration


def api_errors() -> tuple[type[Exception], ...]:
    """What a call of the API raises: for an error response, and without a response."""
    answered = importlib.import_module("kubernetes.client.exceptions").ApiException
    return answered, importlib.import_module("urllib3.exceptions").HTTPError


def status_of(error: Exception) -> int | None:
    """The HTTP status of an error response; None without a response."""
    return getattr(error, "status", None) or None


def explained(error: Exception, what: str) -> HeadraceError:
    """Our error for one of the API, with the message of the server and the way out."""
    status = status_of(error)
    message = message_of(error)
    if status is None or status >= 500 or status == 429:
        return Unavailable(f"{what}: Kubernetes did not answer as it should: {message}")
    way_out = _WAYS_OUT.get(status, "mend what it names")
    return Refused(f"{what}: Kubernetes refused with {status}: {message}; {way_out}")


def message_of(error: Exception) -> str:
    """The message of the server, from the Status object in its response."""
    body = getattr(error, "body", None)
    try:
        status: Any = json.loads(body) if isinstance(body, str | bytes) else None
    except ValueError:  # a proxy in between may answer anything
        status = None
    if isinstance(status, Mapping) and "message" in status:
        return str(status["message"])  # pyright: ignore[reportUnknownArgumentType]
    return str(getattr(error, "reason", None) or error)
