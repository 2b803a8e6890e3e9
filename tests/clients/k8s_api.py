"""As much of a Kubernetes client as the tests and their node agent need, of Python's own library
alone.
"""

import http.client
import json
import ssl
import threading
import urllib.parse

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """An answer that is no success."""

    def __init__(self, code, status):
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code, self.reason = code, status.get("reason")


class Api:
    """Calls to one API server with one bearer token."""

    def __init__(self, host, port, ca, token, timeout=10):
        self.host, self.port, self.token, self.timeout = host, port, token, timeout
        self.tls = ssl.create_default_context(cafile=str(ca))
        self.local = threading.local()

    def _connect(self, timeout):
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)

    def _send(self, connection, method, path, body, content):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def call(self, method, path, body=None, content="application/json", **query):
        """The object that is answered; raises ApiError, or OSError where no server answers."""
        path = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        kept = getattr(self.local, "connection", None)
        for connection in [kept, None] if kept else [None]:
            # A server that was started again has closed what was kept.
            connection = connection or self._connect(self.timeout)
            try:
                answer = self._send(connection, method, path, body, content)
                text = answer.read()
                self.local.connection = connection
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self.local.connection = None
                if connection is not kept:
                    raise OSError(f"{method} {path}: {error}") from error
        is_json = "json" in answer.headers.get("Content-Type", "")
        value = json.loads(text) if is_json else {"message": text.decode(errors="replace")}
        if answer.status >= 300:
            raise ApiError(answer.status, value)
        return value

    def get(self, path, **query):
        return self.call("GET", path, **query)

    def find(self, path):
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def post(self, path, body):
        return self.call("POST", path, body)

    def patch(self, path, body, content=MERGE, **query):
        return self.call("PATCH", path, body, content, **query)

    def delete(self, path, **options):
        return self.call("DELETE", path, options or None)

    def apply(self, manifest):
        """Server-side apply of one object."""
        path = path_of(manifest)
        return self.patch(path, manifest, APPLY, fieldManager="tests", force="true")

    def watch(self, path, version, seconds=30, **query):
        """Events, until the server ends them or cannot be reached (OSError)."""
        query = {**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": seconds}
        connection = self._connect(seconds + 5)
        try:
            answer = self._send(connection, "GET", f"{path}?{urllib.parse.urlencode(query)}", None, "application/json")
            if answer.status >= 300:
                raise ApiError(answer.status, json.loads(answer.read()))
            while line := answer.readline():
                yield json.loads(line)
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


#: Kinds of objects whose names are in no namespace.
CLUSTER_WIDE = {
    "Namespace",
    "Node",
    "PersistentVolume",
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "CustomResourceDefinition",
}


def path_of(manifest):
    """Where an object is."""
    version, kind, names = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"
    plural = "networkpolicies" if kind == "NetworkPolicy" else plural
    place = "" if kind in CLUSTER_WIDE else f"/namespaces/{names['namespace']}"
    return f"{root}{place}/{plural}/{names['name']}"
