"""A Kubernetes API server, as far as a container meets one: its rules, and its very exceptions.

Names are unique in a namespace (409), what is not there is 404, a namespace must exist (404), a
name must be a DNS label and a selector must match its template (422), and deleting is seen first
in a timestamp while a finalizer holds the object. Errors have the body of a real Status.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from kubernetes.client.exceptions import ApiException  # pyright: ignore[reportMissingTypeStubs]

Json = dict[str, Any]
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def refusal(status: int, reason: str, message: str) -> ApiException:
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    error: Any = ApiException(status=status, reason=reason)
    error.body = json.dumps(body)
    return error


class FakeKubernetes:
    def __init__(self, *namespaces: str) -> None:
        self.namespaces = {"default", *namespaces}
        self.deployments: dict[tuple[str, str], Json] = {}
        self.pods: dict[tuple[str, str], Json] = {}
        self.logs: dict[tuple[str, bool], str] = {}
        self.down: Exception | None = None

    def create_namespaced_deployment(self, namespace: str, body: Json) -> Json:
        self._answer()
        if namespace not in self.namespaces:
            raise refusal(404, "NotFound", f'namespaces "{namespace}" not found')
        name = body["metadata"]["name"]
        if (namespace, name) in self.deployments:
            raise refusal(409, "AlreadyExists", f'deployments.apps "{name}" already exists')
        self._check(body)
        made = copy.deepcopy(body)
        self.deployments[namespace, name] = made
        self._make_pod(namespace, made)
        return made

    def read_namespaced_deployment(self, name: str, namespace: str) -> Json:
        self._answer()
        return copy.deepcopy(self._found(name, namespace))

    def delete_namespaced_deployment(self, name: str, namespace: str) -> None:
        self._answer()
        found = self._found(name, namespace)
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return
        del self.deployments[namespace, name]
        wanted = found["spec"]["selector"]["matchLabels"].items()
        for key, pod in list(self.pods.items()):
            if key[0] == namespace and wanted <= pod["metadata"]["labels"].items():
                del self.pods[key]

    def list_namespaced_pod(self, namespace: str, *, label_selector: str) -> list[Json]:
        self._answer()
        wanted = dict(part.split("=") for part in label_selector.split(",")).items()
        return [
            copy.deepcopy(pod)
            for (at, _), pod in self.pods.items()
            if at == namespace and wanted <= pod["metadata"]["labels"].items()
        ]

    def read_namespaced_pod_log(
        self, name: str, namespace: str, *, container: str, tail_lines: int, previous: bool
    ) -> str:
        self._answer()
        if (namespace, name) not in self.pods:
            raise refusal(404, "NotFound", f'pods "{name}" not found')
        if (name, previous) not in self.logs:
            message = f'container "{container}" in pod "{name}" is waiting to start'
            raise refusal(400, "BadRequest", message)
        return "\n".join(self.logs[name, previous].splitlines()[-tail_lines:]) + "\n"

    def pod_of(self, name: str, namespace: str = "default") -> Json:
        return self.pods[namespace, f"{name}-5d4f8-x2x4z"]

    def _make_pod(self, namespace: str, deployment: Json) -> None:
        name = f"{deployment['metadata']['name']}-5d4f8-x2x4z"
        template = copy.deepcopy(deployment["spec"]["template"])
        template["metadata"] |= {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        fresh = {"imageID": "i@sha256:0", "ready": True, "restartCount": 0}
        begun = {"state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, "lastState": {}}
        statuses = [
            {"name": each["name"], "image": each["image"], **fresh, **begun}
            for each in template["spec"]["containers"]
        ]
        self.pods[namespace, name] = {
            **template,
            "status": {"phase": "Running", "containerStatuses": statuses},
        }

    def _found(self, name: str, namespace: str) -> Json:
        if (namespace, name) not in self.deployments:
            raise refusal(404, "NotFound", f'deployments.apps "{name}" not found')
        return self.deployments[namespace, name]

    def _check(self, body: Json) -> None:
        name, spec = body["metadata"]["name"], body["spec"]
        values = list(body["metadata"]["labels"].values())
        if not all(LABEL.fullmatch(text) for text in (name, *values)):
            raise refusal(422, "Invalid", f'Deployment.apps "{name}" is invalid: metadata.name')
        wanted = spec["selector"]["matchLabels"].items()
        if not wanted <= spec["template"]["metadata"]["labels"].items():
            message = "`selector` does not match template `labels`"
            raise refusal(422, "Invalid", f'Deployment.apps "{name}" is invalid: {message}')

    def _answer(self) -> None:
        if self.down is not None:
            raise self.down
