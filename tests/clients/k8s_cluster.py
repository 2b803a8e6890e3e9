#!/usr/bin/env python3
"""A real Kubernetes control plane on this machine, for tests: etcd, kube-apiserver with RBAC and TLS,
kube-controller-manager, kube-scheduler; and nodes that are network and PID namespaces. There is no
kubelet here: the tests' own node agent (k8s_node.py) runs pods as processes. Needs root, Debian's
package etcd-server, and what `cargo xtask kubernetes` builds once.

    k8s_cluster.py up DIRECTORY [NODES]      k8s_cluster.py down DIRECTORY

`up` prints the path of a kubeconfig with the rights of deploy/ in namespace shoal; `kubeconfig` beside
it is the administrator's.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

import machines
import yaml
from k8s_api import Api, ApiError, path_of
from machines import until

PROGRAMS = ["etcd", "openssl", "ip", "unshare", "nsenter"]
PACKAGES = ["etcd-server", "openssl", "iproute2", "util-linux"]
BUILT = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
NAMESPACE = "shoal"
#: What decides here about pods, nodes and their names; others (cloud, certificates) have no use.
CONTROLLERS = (
    "serviceaccount,serviceaccount-token,root-ca-cert-publisher,namespace,garbagecollector,podgc,nodelifecycle,"
    "endpoint,statefulset,job,disruption,resourcequota,persistentvolume-binder,persistentvolume-expander"
)
#: The service account of deploy/, and what of the manifest there are its rights.
ACCOUNT = "shoal"
RIGHTS = ["Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
#: Of Kueue's objects, what the launcher looks up.
LOCAL_QUEUES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "localqueues.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "LocalQueue", "plural": "localqueues", "singular": "localqueue"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
#: Addresses of nodes are 1, 2, ..; those of their pods begin here, PODS for each.
FIRST_POD, PODS = 10, 60


def built():
    """The directory with what `cargo xtask kubernetes` has built, if it is there."""
    if named := os.environ.get("SHOAL_KUBERNETES"):
        return pathlib.Path(named)
    found = sorted(pathlib.Path.home().glob(".cache/shoal/kubernetes-*/complete"), key=lambda it: it.stat().st_mtime)
    return found[-1].parent if found else None


def missing():
    """What keeps a cluster from being started here, if something does."""
    if not built() or not all((built() / "bin" / name).exists() for name in BUILT):
        return "needs Kubernetes' API server, which is not built: `cargo xtask kubernetes` builds it, in 15 minutes"
    return machines.missing("etcd", PROGRAMS, PACKAGES)


def manifest():
    """The objects of deploy/shoal.yaml."""
    path = pathlib.Path(__file__).parents[2] / "deploy/shoal.yaml"
    return [it for it in yaml.safe_load_all(path.read_text()) if it]


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Cluster:
    """Nodes n1 .. nN, each with 8 processors, 64 GiB and 2 GPUs by its own account. With `disks` the
    cache is not this machine's own, and that of each node in `disks` is a file system of that size.
    """

    def __init__(self, root, nodes=3, disks=None):
        self.root, self.nodes, self.disks = pathlib.Path(root).resolve(), nodes, disks or {}
        self.cache = self.root / "cache" if disks else pathlib.Path.home() / ".cache/shoal"
        number = machines.number_of(self.root, "kub")
        self.tag = f"kub{number}"
        self.network = machines.Network(self.tag, f"10.215.{number}")
        self.server = self.network.here
        self.kubeconfig = self.root / "kubeconfig"
        self.table = self.root / "images.json"

    def up(self):
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        self.ports = dict(zip(("api", "etcd", "peer"), free_ports(3)))
        (self.root / "ports.json").write_text(json.dumps(self.ports))
        self.network.up()
        self._make_certificates()
        self.tokens = {name: os.urandom(16).hex() for name in ["admin", *self.names()]}
        (self.root / "tokens.csv").write_text("".join(self._users()))
        self.api = Api(self.server, self.ports["api"], self.root / "ca.crt", self.tokens["admin"])
        self._write_kubeconfig(self.kubeconfig, self.tokens["admin"])
        self.images({"host": {"root": "/", "binds": ["/tmp"]}})
        self.start_etcd()
        self.start_server()
        config = f"--kubeconfig={self.kubeconfig}"
        self._start(
            "kube-controller-manager",
            config,
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={self.root}/sa.key",
            f"--root-ca-file={self.root}/ca.crt",
            "--use-service-account-credentials=false",
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=5s",
            "--pod-eviction-timeout=2s",
            "--terminated-pod-gc-threshold=100",
            "--pvclaimbinder-sync-period=2s",
            *IN_PRIVATE,
        )
        self._start("kube-scheduler", config, *IN_PRIVATE)
        for node in self.numbers():
            self.start_node(node)
        self.until_ready()
        self.apply(*(it for it in manifest() if it["kind"] in RIGHTS))
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        for account in ("default", ACCOUNT):
            path = f"{accounts}/{account}"
            until("accounts have their tokens", lambda path=path: (self.api.find(path) or {}).get("secrets"))
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt"
        until("the namespace has all of its own", lambda: self.api.find(path))
        self.kubeconfig_of(ACCOUNT)
        return self

    def settings(self, shoal, address=None):
        """For shoal.toml: all jobs run here, in pods with this program, by the rights of deploy/.
        `address`: this machine's, as agents are to use it.
        """
        self.images({"shoal": {"root": "/", "files": {"/usr/local/bin/shoal": str(shoal)}}})
        return f"""
default_target = "cluster"
agents_listen = "0.0.0.0:0"
agents_address = "{address or self.server}"
[target.cluster]
kind = "kubernetes"
kubeconfig = "{self.root}/kubeconfig-{ACCOUNT}"
image = "shoal"
cache = {{ host_path = "{self.cache}" }}
"""

    def until_ready(self, nodes=None):
        nodes = {f"n{it}" for it in nodes or self.numbers()}
        until("all nodes are ready", lambda: nodes <= self.ready_nodes())

    def ready_nodes(self):
        is_ready = {"type": "Ready", "status": "True"}
        return {
            it["metadata"]["name"]
            for it in self.api.get("/api/v1/nodes")["items"]
            # The controller takes its taint away a moment after a node has come back.
            if not it["spec"].get("taints")
            and any(is_ready.items() <= condition.items() for condition in it["status"].get("conditions", []))
        }

    def numbers(self):
        return range(1, self.nodes + 1)

    def names(self):
        return [f"n{number}" for number in self.numbers()]

    def _make_certificates(self):
        root = self.root
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl(
            *("req", "-x509", *key, "-days", "30", "-subj", "/CN=tests", "-keyout", root / "ca.key", "-out"),
            root / "ca.crt",
        )
        openssl("req", *key, "-subj", "/CN=kube-apiserver", "-keyout", root / "api.key", "-out", root / "api.csr")
        names = f"IP:127.0.0.1,IP:{self.server},IP:10.96.0.1,DNS:kubernetes.default.svc,DNS:localhost"
        (root / "names").write_text(f"subjectAltName={names}\n")
        ca = ["-CA", root / "ca.crt", "-CAkey", root / "ca.key", "-CAcreateserial", "-extfile", root / "names"]
        openssl("x509", "-req", "-in", root / "api.csr", *ca, "-days", "30", "-out", root / "api.crt")
        openssl("genrsa", "-out", root / "sa.key", "2048")

    def _users(self):
        yield f'{self.tokens["admin"]},admin,admin,"system:masters"\n'
        for name in self.names():
            yield f'{self.tokens[name]},system:node:{name},{name},"system:nodes"\n'

    def _write_kubeconfig(self, path, token, namespace=NAMESPACE):
        ca = base64.b64encode((self.root / "ca.crt").read_bytes()).decode()
        cluster = {"server": f"https://{self.server}:{self.ports['api']}", "certificate-authority-data": ca}
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        # JSON is YAML.
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": context}],
            "current-context": "tests",
        }
        path.write_text(json.dumps(text, indent=1))
        path.chmod(0o600)
        return path

    def kubeconfig_of(self, account, namespace=NAMESPACE):
        """A file with the rights of a service account alone."""
        token = self.token_of(account, namespace)
        return self._write_kubeconfig(self.root / f"kubeconfig-{account}", token, namespace)

    def token_of(self, account, namespace=NAMESPACE):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return self.api.post(path, body)["status"]["token"]

    def api_of(self, account, namespace=NAMESPACE):
        """Calls with the rights of a service account alone."""
        return Api(self.server, self.ports["api"], self.root / "ca.crt", self.token_of(account, namespace))

    def images(self, table):
        """The images that nodes have, added to the present ones: by name their `root`, a directory;
        and `files` of the machine's, `binds` (paths that are the machine's own), `entrypoint`, `cmd`,
        `env`, `cwd`.
        """
        known = json.loads(self.table.read_text()) if self.table.exists() else {}
        new = self.table.with_suffix(".new")
        new.write_text(json.dumps({**known, **table}))
        new.rename(self.table)

    def apply(self, *manifests):
        return [self.api.apply(manifest) for manifest in manifests]

    def pods(self, namespace=NAMESPACE, **query):
        found = self.api.get(f"/api/v1/namespaces/{namespace}/pods", **query)
        return {it["metadata"]["name"]: it for it in found["items"]}

    def pod(self, name, namespace=NAMESPACE):
        return self.api.find(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def objects(self, namespace=NAMESPACE):
        """Names of all that a client may have made there, by kind."""
        kinds = ["pods", "services", "secrets", "configmaps"]
        found = {kind: self.api.get(f"/api/v1/namespaces/{namespace}/{kind}")["items"] for kind in kinds}
        return {kind: sorted(it["metadata"]["name"] for it in items) for kind, items in found.items()}

    @contextlib.contextmanager
    def creations(self, namespace=NAMESPACE):
        """Pods that are created meanwhile, be it that they are gone; complete at the end."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        version = self.api.get(path)["metadata"]["resourceVersion"]
        found, errors, ends = [], [], threading.Event()

        def collect(version):
            is_last = False
            while not is_last and not errors:
                is_last = ends.is_set()
                for event in self.api.watch(path, version, seconds=1):
                    if event["type"] == "ERROR":
                        errors.append(event)
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "ADDED":
                        found.append(event["object"])

        thread = threading.Thread(target=collect, args=(version,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            ends.set()
            thread.join()
        assert not errors, errors

    def add_pod(self, name, command, resources, namespace=NAMESPACE, **spec):
        """A pod of others."""
        container = {"name": "c", "image": "host", "command": command, "resources": resources}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        pod["spec"] = {"restartPolicy": "Never", "containers": [container], **spec}
        return self.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)

    def delete_pod(self, name, namespace=NAMESPACE):
        self.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=1)

    def log(self, pod, container):
        """What a container has printed: the last time that it was started."""
        files = self.root.glob(f"n*/pods/{pod['metadata']['uid']}/{container}-*.log")
        return max(files, key=lambda it: it.stat().st_mtime).read_text()

    # Processes.

    def _start(self, program, *flags, before=()):
        """One of the programs; or what is `before`, with a node's name."""
        path = built() / "bin" / program
        command = [*before, *flags] if before else [path if path.exists() else program, *flags]
        with open(self.root / f"{program}.log", "ab") as log:
            environment = {**os.environ, "PATH": machines.PATH}
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        (self.root / f"{program}.pid").write_text(str(process.pid))
        return process

    def _kill(self, program):
        pid = self.root / f"{program}.pid"
        try:
            number = int(pid.read_text())
            os.kill(number, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return
        pid.unlink()
        try:
            os.waitpid(number, 0)
        except ChildProcessError:
            until(f"{program} is gone", lambda: not pathlib.Path(f"/proc/{number}").exists())

    def start_etcd(self):
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "peer"))
        self._start(
            "etcd",
            f"--data-dir={self.root}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def start_server(self):
        """The API server; also again, on the same port."""
        root = self.root
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            f"--secure-port={self.ports['api']}",
            f"--bind-address={self.server}",
            f"--advertise-address={self.server}",
            f"--tls-cert-file={root}/api.crt",
            f"--tls-private-key-file={root}/api.key",
            f"--cert-dir={root}/certificates",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--token-auth-file={root}/tokens.csv",
            f"--service-account-key-file={root}/sa.key",
            f"--service-account-signing-key-file={root}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--default-not-ready-toleration-seconds=2",
            "--default-unreachable-toleration-seconds=2",
            "--allow-privileged=true",
        )
        until("the API server answers", self._is_answered, 60)

    def _is_answered(self):
        try:
            # While it starts, it accepts connections and leaves them waiting.
            return Api(self.server, self.ports["api"], self.root / "ca.crt", self.tokens["admin"], 1).get("/readyz")
        except (ApiError, OSError):
            return False

    def kill_server(self):
        """The API server is gone at once; what it has acknowledged is in etcd."""
        self._kill("kube-apiserver")

    def start_node(self, node):
        """Also again, after it was killed: as a machine that has started again."""
        namespace = self.network.machine(node)
        address = self.network.address(node)
        if "cni0" not in machines.run("ip", "-n", namespace, "-o", "link").stdout:
            # Pods' links join the node's own on a bridge of the node.
            for words in (
                ("link", "add", "cni0", "type", "bridge"),
                ("link", "set", "eth0", "master", "cni0"),
                ("address", "add", f"{address}/24", "dev", "cni0"),
                ("link", "set", "cni0", "up"),
            ):
                machines.run("ip", "-n", namespace, *words)
        first = FIRST_POD + (node - 1) * PODS
        configuration = {
            "name": f"n{node}",
            "tag": self.tag,
            "address": address,
            "addresses": [self.network.address(it) for it in range(first, first + PODS)],
            "capacity": {"cpu": "8", "memory": "64Gi", "pods": str(PODS), "nvidia.com/gpu": "2"},
            "labels": {
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "tests/node": f"n{node}",
                "tests/disk": "small" if node in self.disks else "large",
            },
            "api": [self.server, self.ports["api"], str(self.root / "ca.crt"), self.tokens[f"n{node}"]],
            "directory": str(self.root / f"n{node}"),
            "images": str(self.table),
        }
        path = self.root / f"n{node}.json"
        path.write_text(json.dumps(configuration))
        shutil.rmtree(self.root / f"n{node}/pods", ignore_errors=True)
        alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        if node in self.disks:
            # There for as long as the node's namespaces are.
            self.cache.mkdir(exist_ok=True)
            script = 'mount -t tmpfs -o "size=$1" tmpfs "$2"; shift 2; exec "$@"'
            alone += ["/bin/sh", "-ec", script, "disk", self.disks[node], self.cache]
        agent = pathlib.Path(__file__).with_name("k8s_node.py")
        self._start(
            f"n{node}", agent, path, before=["nsenter", f"--net=/run/netns/{namespace}", *alone, sys.executable, "-u"]
        )

    def kill_node(self, node):
        """As when a machine loses power."""
        self._kill(f"n{node}")

    def cut_node(self, node, is_cut=True):
        """Neither its agent nor its pods reach anything; or they do again."""
        self.network.cut(node, is_cut)

    def node_of(self, pod):
        return int(pod["spec"]["nodeName"][1:])

    def evict(self, pod):
        """The node ends it for want of a resource, as a kubelet does."""
        order = self.root / f"n{self.node_of(pod)}/evict/{pod['metadata']['uid']}"
        order.touch()

    def drain(self, pod):
        """Evicted by the API, as `kubectl drain` does."""
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
        self.api.post(f"{path_of({**pod, 'apiVersion': 'v1', 'kind': 'Pod'})}/eviction", body)

    def down(self):
        programs = [*self.names(), "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"]
        for program in programs:
            self._kill(program)
        for group in pathlib.Path("/sys/fs/cgroup/memory").glob(f"{self.tag}-*"):
            until(f"{group} is empty", lambda group=group: not (group / "cgroup.procs").read_text())
            group.rmdir()
        self.network.down(self.numbers())


#: There is one of each, and no client asks for their state.
IN_PRIVATE = ["--leader-elect=false", "--port=0", "--secure-port=0"]


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in held]
    for it in held:
        it.close()
    return ports


def main():
    verb, root, *nodes = sys.argv[1:]
    cluster = Cluster(root, *map(int, nodes))
    if verb == "up":
        problem = missing()
        if problem:
            sys.exit(problem)
        cluster.up()
        print(cluster.root / f"kubeconfig-{ACCOUNT}")
    else:
        cluster.down()


if __name__ == "__main__":
    main()
