"""A registry of images on this machine: docker's own, as Debian has it, with one user."""

import hashlib
import json
import shutil
import socket
import subprocess
import urllib.request
from base64 import b64encode

import machines
from house import eventually

USER, PASSWORD = "tests", "secret"
#: Of bcrypt, the one kind that it knows.
HASHED = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
PROGRAM, PACKAGE = "docker-registry", "docker-registry"
OCI = "application/vnd.oci.image"
LOGIN = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def missing():
    """What keeps one from being started here, if something does."""
    return None if shutil.which(PROGRAM) else machines.missing("docker's registry", [PROGRAM], [PACKAGE])


class Registry:
    """Answers at `address`, over HTTP."""

    def __init__(self, directory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (directory / "users").write_text(f"{USER}:{HASHED}\n")
        # JSON is YAML.
        settings = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(directory / "content")}},
            "http": {"addr": self.address},
            "auth": {"htpasswd": {"realm": "tests", "path": str(directory / "users")}},
        }
        (directory / "config.yml").write_text(json.dumps(settings))
        with open(directory / "log", "ab") as log:
            command = [PROGRAM, "serve", str(directory / "config.yml")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._is_up)

    def _is_up(self):
        try:
            return self._send("GET", "/v2/").status == 200
        except OSError:
            return False

    def close(self):
        self.process.kill()
        self.process.wait()

    def login(self):
        """As docker's configuration file has it."""
        return {"auths": {self.address: {"username": USER, "password": PASSWORD}}}

    def push(self, name, tag, **entrypoints):
        """An image without layers for each architecture, with this ENTRYPOINT; its name."""
        platforms = []
        for architecture, entrypoint in entrypoints.items():
            config = {"architecture": architecture, "os": "linux", "config": {"Entrypoint": entrypoint}}
            config = self._put_blob(name, {**config, "rootfs": {"type": "layers", "diff_ids": []}})
            manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "layers": []}
            manifest["config"] = {"mediaType": f"{OCI}.config.v1+json", **config}
            platform = {"architecture": architecture, "os": "linux"}
            platforms.append({**self._put_manifest(name, manifest), "platform": platform})
        index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": platforms}
        self._put_manifest(name, index, tag)
        return f"{self.address}/{name}:{tag}"

    def _put_blob(self, name, document):
        described, content = describe(document)
        place = self._send("POST", f"/v2/{name}/blobs/uploads/").headers["Location"]
        joint = "&" if "?" in place else "?"
        self._send("PUT", f"{place}{joint}digest={described['digest']}", content, "application/octet-stream")
        return described

    def _put_manifest(self, name, manifest, tag=None):
        described, content = describe(manifest)
        self._send("PUT", f"/v2/{name}/manifests/{tag or described['digest']}", content, manifest["mediaType"])
        return {"mediaType": manifest["mediaType"], **described}

    def _send(self, method, place, content=None, kind=None):
        headers = {"Authorization": LOGIN, **({"Content-Type": kind} if kind else {})}
        address = place if place.startswith("http") else f"http://{self.address}{place}"
        request = urllib.request.Request(address, content, headers, method=method)
        return urllib.request.urlopen(request, timeout=10)


def describe(document):
    content = json.dumps(document).encode()
    return {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}, content
