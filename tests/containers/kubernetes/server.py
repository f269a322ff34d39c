"""The fake of Kubernetes behind real HTTP, for the official client to speak to."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes.client.exceptions import ApiException  # pyright: ignore[reportMissingTypeStubs]

from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes

PATH = re.compile(
    r"/(?:apis/apps|api)/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>deployments|pods)"
    r"(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)
KUBE_CONFIG = """
apiVersion: v1
kind: Config
current-context: fake
clusters: [{name: fake, cluster: {server: "http://127.0.0.1:%d"}}]
contexts: [{name: fake, context: {cluster: fake, user: fake}}]
users: [{name: fake, user: {}}]
"""


def answer_of(api: FakeKubernetes, method: str, url: str, body: bytes) -> Any:
    """What the server says: JSON, or the text of a log."""
    parts = urlsplit(url)
    found = PATH.fullmatch(parts.path)
    assert found is not None, url
    namespace, name = found["namespace"], found["name"]
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    match method, found["kind"], name, found["log"]:
        case "POST", "deployments", None, None:
            return api.create_namespaced_deployment(namespace, json.loads(body))
        case "GET", "deployments", str(), None:
            return api.read_namespaced_deployment(name, namespace)
        case "DELETE", "deployments", str(), None:
            assert query["propagationPolicy"] == "Background", "or its pods would stay"
            api.delete_namespaced_deployment(name, namespace)
            return {"kind": "Status", "status": "Success"}
        case "GET", "pods", None, None:
            pods = api.list_namespaced_pod(namespace, label_selector=query["labelSelector"])
            return {"kind": "PodList", "apiVersion": "v1", "items": pods}
        case "GET", "pods", str(), "/log":
            return api.read_namespaced_pod_log(
                name,
                namespace,
                container=query["container"],
                tail_lines=int(query["tailLines"]),
                previous=query["previous"] == "true",
            )
        case _:
            raise AssertionError(f"{method} {url}")


def handler_of(api: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer, status = answer_of(api, self.command, self.path, body), 200
            except ApiException as error:
                said: Any = error
                answer, status = json.loads(said.body), said.status
            is_log = isinstance(answer, str)
            data = (answer if is_log else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_log else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - as the server calls them

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    return Handler


@contextmanager
def served(api: FakeKubernetes, folder: Path) -> Generator[Path]:
    """A kubeconfig that leads to the fake."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(api)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            path = folder / "kube.config"
            path.write_text(KUBE_CONFIG % server.server_address[1])
            yield path
        finally:
            server.shutdown()
            thread.join()
