"""A node agent of the tests' own, for k8s_cluster.py. There is no kubelet here: this registers a node,
keeps its lease, and runs the pods that are bound to it as processes in namespaces, with the statuses,
reasons and exit codes that a kubelet reports. An "image" is a directory tree, of a table of names.

    k8s_node.py CONFIGURATION.json

It runs in the network and PID namespace of its node: who kills that ends the machine. It differs from
a kubelet in that probes, life-cycle hooks and limits of processors are passed over, and that the name
of any service resolves to its endpoints' addresses, since there is no kube-proxy.
"""

import json
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

from k8s_api import MERGE, STRATEGIC, Api, ApiError
from k8s_pod import Pod, now, terminated

BEAT_S = 1
RETRY_S = 0.2


class Node:
    """One node: `name`, its address, the addresses of its pods, and the pods by their uid."""

    def __init__(self, configuration):
        self.__dict__.update({name: configuration[name] for name in ("name", "tag", "address", "capacity", "labels")})
        self.api = Api(*configuration["api"])
        self.directory = pathlib.Path(configuration["directory"])
        self.table = pathlib.Path(configuration["images"])
        self.free = list(configuration["addresses"])
        self.bits = 24
        self.pods = {}
        self.lock = threading.Lock()
        self.count = 0

    def images(self):
        return json.loads(self.table.read_text())

    # The node itself.

    def until_answered(self, call):
        """The answer to a call that is made again while no server answers."""
        while True:
            try:
                return call()
            except OSError:
                time.sleep(RETRY_S)

    def register(self):
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self.labels}},
        }
        try:
            self.until_answered(lambda: self.api.post("/api/v1/nodes", node))
        except ApiError as error:
            if error.code != 409:
                raise
        self.until_answered(self.beat)

    def beat(self):
        """As a kubelet's: the lease, and the status."""
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}]
        addresses = [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": self.name}]
        status = {"capacity": self.capacity, "allocatable": self.capacity, "addresses": addresses}
        status["conditions"] = conditions
        self.api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status}, STRATEGIC)
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 4, "renewTime": now().replace("Z", ".000000Z")}
        try:
            self.api.patch(f"{leases}/{self.name}", {"spec": spec}, MERGE)
        except ApiError as error:
            if error.code != 404:
                raise
            self.api.post(leases, {"metadata": {"name": self.name}, "spec": spec})

    def beats(self):
        while True:
            try:
                self.beat()
            except (OSError, ApiError) as error:
                print(f"heartbeat: {error}", flush=True)
            time.sleep(BEAT_S)

    def evictions(self):
        """A file whose name is a pod's uid ends it, as pressure on a node does."""
        orders = self.directory / "evict"
        orders.mkdir(exist_ok=True)
        while True:
            for order in orders.iterdir():
                if pod := self.pods.get(order.name):
                    pod.evict("Evicted", "The node was low on resource: ephemeral-storage.")
                order.unlink()
            time.sleep(0.05)

    # Pods.

    def follow(self):
        """Pods as they are bound, changed and deleted, for ever."""
        mine = {"fieldSelector": f"spec.nodeName={self.name}"}
        while True:
            try:
                found = self.api.get("/api/v1/pods", **mine)
                version = found["metadata"]["resourceVersion"]
                uids = {it["metadata"]["uid"] for it in found["items"]}
                for pod in [pod for uid, pod in list(self.pods.items()) if uid not in uids]:
                    pod.vanish()
                for pod in found["items"]:
                    self.seen(pod)
                while True:
                    for event in self.api.watch("/api/v1/pods", version, **mine):
                        if event["type"] == "ERROR":
                            raise ApiError(event["object"]["code"], event["object"])
                        version = event["object"]["metadata"]["resourceVersion"]
                        self.seen(event["object"], is_deleted=event["type"] == "DELETED")
            except (OSError, ApiError) as error:
                print(f"pods: {error}", flush=True)
                time.sleep(RETRY_S)

    def seen(self, pod, is_deleted=False):
        names, status = pod["metadata"], pod["status"]
        known = self.pods.get(names["uid"])
        if known:
            known.vanish() if is_deleted else known.update(pod)
        elif is_deleted:
            pass
        elif names.get("deletionTimestamp"):
            self.remove(f"/api/v1/namespaces/{names['namespace']}/pods/{names['name']}", names["uid"])
        elif status.get("phase") in ("Succeeded", "Failed"):
            pass
        elif status.get("containerStatuses") and pod["spec"].get("restartPolicy") == "Never":
            self.lost(pod)
        else:
            self.pods[names["uid"]] = Pod(self, pod).start()

    def lost(self, pod):
        """It was running when the machine lost its power."""
        message = "The container could not be located when the pod was terminated"
        end = {"terminated": terminated(137, "ContainerStatusUnknown", message), "running": None, "waiting": None}
        names, status = pod["metadata"], pod["status"]
        containers = [{**it, "ready": False, "state": end} for it in status["containerStatuses"]]
        path = f"/api/v1/namespaces/{names['namespace']}/pods/{names['name']}"
        self.report(path, names["uid"], {"phase": "Failed", "containerStatuses": containers})

    def report(self, path, uid, status):
        body = {"metadata": {"uid": uid}, "status": status}
        try:
            self.until_answered(lambda: self.api.patch(f"{path}/status", body, STRATEGIC))
        except ApiError as error:
            # It is gone, or another has its name.
            print(f"status of {path}: {error}", flush=True)

    def remove(self, path, uid):
        """The last step of a deletion is the node's."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            self.until_answered(lambda: self.api.delete(path, **options))
        except ApiError as error:
            print(f"deletion of {path}: {error}", flush=True)

    def forget(self, pod):
        self.pods.pop(pod.uid, None)

    # Their network.

    def sandbox(self, pod):
        """An address, and the process that holds a pod's namespaces."""
        with self.lock:
            # The one that was free for longest: clients may still look for a pod at its last one.
            address = self.free.pop(0)
            self.count += 1
            link = f"p{self.count}"
        hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
        script = 'hostname "$1"; ip link set lo up; echo; exec sleep infinity'
        pause = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "/bin/sh", "-c", script, "pause", hostname[:63]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        pause.stdout.readline()
        inside = ["nsenter", f"--target={pause.pid}", "--net", "--"]
        for command in (
            ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pause.pid)],
            ["ip", "link", "set", link, "master", "cni0", "up"],
            [*inside, "ip", "address", "add", f"{address}/{self.bits}", "dev", "eth0"],
            [*inside, "ip", "link", "set", "eth0", "up"],
        ):
            subprocess.run(command, check=True)
        return address, pause

    def release(self, address, pause):
        pause.kill()
        pause.wait()
        with self.lock:
            self.free.append(address)


class Names:
    """The cluster's DNS, as far as the tests need it: addresses of services and of their pods, from
    endpoints; over UDP, A records alone.
    """

    def __init__(self, node):
        self.node = node
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((node.address, 53))

    def serve(self):
        while True:
            query, sender = self.socket.recvfrom(512)
            try:
                self.socket.sendto(self.answer(query), sender)
            except (OSError, ApiError, IndexError) as error:
                print(f"names: {error}", flush=True)

    def answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        question = query[12 : at + 5]
        found = self.addresses(labels)
        records = found if found and kind == 1 else []
        # Response, authoritative, recursion as asked for; 3: there is no such name.
        flags = 0x8500 | (0 if found is not None else 3)
        head = query[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
        body = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(it) for it in records]
        return head + question + b"".join(body)

    def addresses(self, labels):
        """`service.namespace.svc.cluster.local`, or a pod's name before it; None: no such name."""
        if labels[-3:] != ["svc", "cluster", "local"] or len(labels) not in (5, 6):
            return None
        service, namespace = labels[-5:-3]
        endpoints = self.node.api.find(f"/api/v1/namespaces/{namespace}/endpoints/{service}")
        if endpoints is None:
            return None
        every = []
        for subset in endpoints.get("subsets", []):
            every += subset.get("addresses", [])
        if len(labels) == 6:
            every = [it for it in every if it.get("hostname") == labels[0]]
        return [it["ip"] for it in every] or None


def main():
    node = Node(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    node.directory.mkdir(parents=True, exist_ok=True)
    node.register()
    for work in (node.beats, node.evictions, Names(node).serve):
        threading.Thread(target=work, daemon=True).start()
    node.follow()


if __name__ == "__main__":
    main()
