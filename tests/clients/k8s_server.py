"""A server that is a pod, and a way to it from this machine."""

import contextlib
import json
import socket
import socketserver
import subprocess
import threading

from house import SHOAL, House


class Forward(socketserver.ThreadingTCPServer):
    """As `kubectl port-forward`: a port of this machine's that leads to one of a pod's."""

    daemon_threads = True

    def __init__(self, target):
        self.target = target
        super().__init__(("127.0.0.1", 0), None)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, client, _):
        with contextlib.suppress(OSError), socket.create_connection(self.target()) as pod:
            back = threading.Thread(target=self.copy, args=(pod, client), daemon=True)
            back.start()
            self.copy(client, pod)
            back.join()

    @staticmethod
    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class Server:
    """The server of deploy/shoal.yaml, as `Jobs` uses one: wherever its pod is."""

    def __init__(self, cluster, data):
        self.cluster, self.data = cluster, data
        self.forward = Forward(lambda: (self.object()["status"]["podIP"], 9777))

    def object(self):
        return self.cluster.pod("shoal-0")

    def is_up(self):
        pod = self.object()
        if not pod or pod["status"]["phase"] != "Running" or pod["metadata"].get("deletionTimestamp"):
            return False
        with socket.socket() as client:
            return client.connect_ex((pod["status"]["podIP"], 9777)) == 0

    def variables_for_clients(self):
        environment = {"SHOAL_DATA_DIR": str(self.data), "PATH": "/usr/bin:/bin"}
        command = [SHOAL, "env", "--json"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        here = {
            "AWS_ENDPOINT_URL": f"https://127.0.0.1:{self.forward.server_address[1]}",
            "AWS_CA_BUNDLE": str(self.data / "tls/authority.pem"),
        }
        return {**json.loads(text), **here}

    def client(self, service, **options):
        return House.client(self, service, verify=str(self.data / "tls/authority.pem"), **options)

    def shoal(self, *arguments, check=True):
        """A command of ours, as its owner from another machine."""
        environment = {**self.variables_for_clients(), "PATH": "/usr/bin:/bin"}
        return subprocess.run([SHOAL, *arguments], check=check, capture_output=True, text=True, env=environment)
