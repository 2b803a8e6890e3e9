"""What a pod on the tests' node agent is given: volumes, and files and values of secrets and config
maps.
"""

import base64
import pathlib


class Missing(Exception):
    """Something that a pod needs is not there (yet)."""


class Content:
    """What a pod is given."""

    def __init__(self, pod):
        self.pod = pod

    def volume(self, volume):
        """The path of a volume on the node."""
        place = self.pod.directory / "volumes" / volume["name"]
        if "emptyDir" in volume:
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o777)
            return place
        if "hostPath" in volume:
            place = pathlib.Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                place.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                raise Missing(place)
            return place
        if "persistentVolumeClaim" in volume:
            claim = f"/api/v1/namespaces/{self.pod.namespace}/persistentvolumeclaims/"
            claim = self.pod.node.api.get(claim + volume["persistentVolumeClaim"]["claimName"])
            if not claim["spec"].get("volumeName"):
                raise Missing(volume["name"])
            bound = self.pod.node.api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
            return pathlib.Path(bound["spec"]["hostPath"]["path"])
        place.mkdir(parents=True, exist_ok=True)
        for name, content in self._files(volume).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        return place

    def _files(self, volume):
        """The files of a volume that is made of objects: names and contents."""
        if "secret" in volume:
            return self._items("secrets", volume["secret"]["secretName"], volume["secret"])
        if "configMap" in volume:
            return self._items("configmaps", volume["configMap"]["name"], volume["configMap"])
        if "downwardAPI" in volume:
            return {it["path"]: self.pod.field(it["fieldRef"]).encode() for it in volume["downwardAPI"]["items"]}
        if "projected" in volume:
            return {k: v for it in volume["projected"]["sources"] for k, v in self._projected(it).items()}
        raise ValueError(f"the tests' node agent has no volumes of this kind: {volume}")

    def _projected(self, source):
        if "serviceAccountToken" in source:
            token = source["serviceAccountToken"]
            account = self.pod.spec.get("serviceAccountName", "default")
            path = f"/api/v1/namespaces/{self.pod.namespace}/serviceaccounts/{account}/token"
            owner = {"kind": "Pod", "apiVersion": "v1", "name": self.pod.name, "uid": self.pod.uid}
            spec = {"expirationSeconds": token.get("expirationSeconds", 3600), "boundObjectRef": owner}
            spec["audiences"] = [token["audience"]] if "audience" in token else []
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            return {token["path"]: self.pod.node.api.post(path, request)["status"]["token"].encode()}
        kind, kinds = ("secret", "secrets") if "secret" in source else ("configMap", "configmaps")
        if kind not in source:
            return self._files(source)
        return self._items(kinds, source[kind]["name"], source[kind])

    def _items(self, kinds, name, source):
        data = self.data(kinds, name)
        items = source.get("items")
        return {it["path"]: data[it["key"]] for it in items} if items else data

    def data(self, kinds, name):
        found = self.pod.node.api.find(f"/api/v1/namespaces/{self.pod.namespace}/{kinds}/{name}")
        if found is None:
            raise Missing(name)
        data = found.get("data") or {}
        return {k: base64.b64decode(v) if kinds == "secrets" else v.encode() for k, v in data.items()}
