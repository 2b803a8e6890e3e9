"""A pod on the tests' node agent (k8s_node.py): its network, volumes and containers, and its status
as a kubelet reports it.
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from k8s_api import ApiError
from k8s_volumes import Content, Missing

STARTER = pathlib.Path(__file__).with_name("k8s_container.py")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TERMINATION_LOG = "/dev/termination-log"
#: Characters of a log that become a termination message.
MAX_MESSAGE = 2048
MEMORY = pathlib.Path("/sys/fs/cgroup/memory")
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "": 1}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def quantity(text):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return int(float(number) * UNITS[unit])


def terminated(code, reason, message="", began=None):
    return {"exitCode": code, "reason": reason, "message": message, "startedAt": began or now(), "finishedAt": now()}


class Container:
    """One container of a pod, as its status has it."""

    def __init__(self, pod, spec):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.state = {"waiting": {"reason": "ContainerCreating" if not pod.inits else "PodInitializing"}}
        self.process = self.group = self.began = None
        self.restarts = 0
        self.is_killed = False

    def status(self):
        states = {"waiting": None, "running": None, "terminated": None}
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "",
            "ready": "running" in self.state,
            "started": "running" in self.state,
            "restartCount": self.restarts,
            "state": {**states, **self.state},
        }

    def end(self):
        return self.state.get("terminated")

    def start(self):
        image = self.pod.node.images().get(self.spec["image"])
        if image is None:
            raise Missing(self.spec["image"])
        place = self.pod.directory / f"{self.name}-{self.restarts}"
        self.log, self.message = place.with_suffix(".log"), place.with_suffix(".message")
        self.message.touch()
        self.message.chmod(0o666)
        specification = place.with_suffix(".json")
        self.failed = specification.with_suffix(".failed")
        self.group = self._make_group()
        specification.write_text(json.dumps(self._specification(image)))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.pod.enter(), sys.executable, "-S", str(STARTER), str(specification)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.began = now()
        self.state = {"running": {"startedAt": self.began}}

    def _specification(self, image):
        security = {**self.pod.spec.get("securityContext", {}), **self.spec.get("securityContext", {})}
        environment = {"PATH": PATH, **image.get("env", {}), **self.pod.variables(self.spec)}
        words = (self.spec.get("command") or image.get("entrypoint", [])) + (
            self.spec.get("args") or ([] if self.spec.get("command") else image.get("cmd", []))
        )
        mounts = [self.pod.mount(it, environment) for it in self.spec.get("volumeMounts", [])]
        target = self.spec.get("terminationMessagePath", TERMINATION_LOG)
        mounts.append({"source": str(self.message), "target": target, "read_only": False})
        return {
            "image": image["root"],
            "files": {**image.get("files", {}), **self.pod.own_files()},
            "binds": image.get("binds", []),
            "mounts": mounts,
            "env": environment,
            "argv": [expanded(word, environment) for word in words],
            "cwd": self.spec.get("workingDir") or image.get("cwd", "/"),
            "user": security.get("runAsUser"),
            "group": security.get("runAsGroup"),
            "groups": [it for it in [security.get("fsGroup")] if it is not None],
            "is_read_only": security.get("readOnlyRootFilesystem", False),
            "privileged": security.get("privileged", False),
            "may_gain_privileges": security.get("allowPrivilegeEscalation", True),
            "control_group": str(self.group or ""),
        }

    def _make_group(self):
        limit = self.spec.get("resources", {}).get("limits", {}).get("memory")
        if limit is None:
            return None
        group = MEMORY / f"{self.pod.node.tag}-{self.pod.uid}-{self.name}-{self.restarts}"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(quantity(limit)))
        return group

    def signal(self, number):
        """To process 1, which the starter has as its only child."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            for child in children.read_text().split():
                os.kill(int(child), number)
        except OSError:
            pass

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def note_end(self):
        """The status of a process that is over."""
        code = self.process.returncode
        message = self.message.read_text(errors="replace")
        if not message and code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = self.log.read_text(errors="replace")
        reason = "Completed" if code == 0 else "Error"
        if self.failed.exists() and self.failed.stat().st_size:
            reason, message = "StartError", self.failed.read_text()
        elif self._ran_out_of_memory():
            reason = "OOMKilled"
        self.state = {"terminated": terminated(code, reason, message[-MAX_MESSAGE:], self.began)}
        self.remove_group()

    def _ran_out_of_memory(self):
        return self.group and not re.search(r"oom_kill 0\b", (self.group / "memory.oom_control").read_text())

    def remove_group(self):
        for _ in range(50):
            try:
                if self.group and self.group.exists():
                    self.group.rmdir()
                return
            except OSError:
                time.sleep(0.02)


def expanded(text, environment):
    """`$(NAME)` replaced, and `$$` by `$`."""
    value = lambda it: "$" if it[0] == "$$" else environment.get(it[1], it[0])
    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


class Pod:
    """A pod and the thread that runs it. `node` is the agent."""

    def __init__(self, node, pod):
        self.node, self.object = node, pod
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.uid, self.spec = pod["metadata"]["uid"], pod["spec"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.directory = node.directory / "pods" / self.uid
        self.content = Content(self)
        self.inits = []
        self.inits = [Container(self, it) for it in self.spec.get("initContainers", [])]
        self.containers = [Container(self, it) for it in self.spec["containers"]]
        self.phase, self.reason, self.message, self.address, self.pause = "Pending", None, None, None, None
        self.began = time.monotonic()
        # Seconds from deletion to SIGKILL, once it is deleted; or why the node ends it.
        self.grace = self.evicted = None
        self.wake = threading.Condition()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    # What the agent knows about it.

    def update(self, pod):
        with self.wake:
            self.object = pod
            if pod["metadata"].get("deletionTimestamp") and self.grace is None:
                self.grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            self.wake.notify_all()

    def evict(self, reason, message):
        with self.wake:
            self.evicted = (reason, message)
            self.wake.notify_all()

    def vanish(self):
        """It was deleted with no grace: its object is gone."""
        self.update({**self.object, "metadata": {**self.object["metadata"], "deletionTimestamp": now()}})
        self.grace = 0

    # What it does.

    def _run(self):
        try:
            self._run_containers()
        except Exception as error:  # its status is where a mistake of this agent shows
            self.reason, self.message = "AgentError", repr(error)
            self._kill_all(0)
        if self.phase not in ("Succeeded", "Failed"):
            self._note_phase()
        self._end()

    def _run_containers(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._prepared():
            return
        self.report()
        for init in self.inits:
            if not self._started(init) or not self._supervised([init]):
                return
            if init.end()["exitCode"] != 0:
                return
        if all([self._started(it) for it in self.containers]):
            self.phase = "Running"
            self.report()
            self._supervised(self.containers)

    def _must_end(self):
        limit = self.spec.get("activeDeadlineSeconds")
        if limit and time.monotonic() - self.began > limit and not self.evicted:
            self.evicted = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        return self.grace is not None or self.evicted is not None

    def _sleep(self, seconds):
        """Whether the pod is still to run."""
        with self.wake:
            if not self._must_end():
                self.wake.wait(seconds)
            return not self._must_end()

    def _prepared(self):
        """Secrets, volumes and addresses are there; false if the pod is to end before."""
        while True:
            try:
                self.volumes = {it["name"]: self.content.volume(it) for it in self.spec.get("volumes", [])}
                break
            except (Missing, ApiError, OSError):
                if not self._sleep(0.3):
                    return False
        if self.spec.get("hostNetwork"):
            self.address = self.node.address
        else:
            self.address, self.pause = self.node.sandbox(self.object)
        hosts = f"127.0.0.1 localhost\n{self.address} {self.hostname()}\n"
        for alias in self.spec.get("hostAliases", []):
            hosts += f"{alias['ip']} {' '.join(alias['hostnames'])}\n"
        (self.directory / "hosts").write_text(hosts)
        (self.directory / "hostname").write_text(f"{self.hostname()}\n")
        domains = [f"{self.namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
        domains += self.spec.get("dnsConfig", {}).get("searches", [])
        text = f"nameserver {self.node.address}\nsearch {' '.join(domains)}\noptions ndots:5\n"
        (self.directory / "resolv.conf").write_text(text)
        return True

    def _started(self, container):
        """Starts it when its image is there; false if the pod is to end before."""
        for attempt in range(10**6):
            try:
                container.start()
                return True
            except Missing as missing:
                reason = "ErrImagePull" if attempt % 2 == 0 else "ImagePullBackOff"
                text = f'Back-off pulling image "{missing}"'
                if reason == "ErrImagePull":
                    text = f'rpc error: failed to pull and unpack image "{missing}": not found'
            except ApiError as error:
                reason, text = "CreateContainerConfigError", str(error)
            container.state = {"waiting": {"reason": reason, "message": text}}
            self.report()
            if not self._sleep(1):
                return False
        return False

    def _supervised(self, containers):
        """Waits for the ends of containers, and starts again those that the policy names; false if
        the pod was ended.
        """
        policy = self.spec.get("restartPolicy", "Always")
        while True:
            for container in containers:
                if container.end() or container.is_alive():
                    continue
                container.note_end()
                code = container.end()["exitCode"]
                self.report()
                is_init = container in self.inits
                if policy == "Always" and not (is_init and code == 0) or policy == "OnFailure" and code:
                    if not self._sleep(min(0.5 * 2**container.restarts, 10)):
                        break
                    container.restarts += 1
                    if not self._started(container):
                        break
                    self.report()
            if all(container.end() for container in containers):
                return True
            if not self._sleep(0.02):
                self._kill_all(self.grace if self.grace is not None else 1)
                return False

    def _kill_all(self, grace):
        alive = [it for it in [*self.inits, *self.containers] if it.is_alive()]
        for container in alive:
            container.signal(signal.SIGTERM)
        end = time.monotonic() + grace
        while any(it.is_alive() for it in alive) and time.monotonic() < end and (self.grace is None or self.grace > 0):
            time.sleep(0.02)
        for container in alive:
            # Its starter may not have started it yet.
            while container.is_alive():
                container.signal(signal.SIGKILL)
                time.sleep(0.02)
            container.note_end()

    def _note_phase(self):
        if self.evicted:
            self.reason, self.message = self.evicted
            self.phase = "Failed"
            return
        ends = [it.end() for it in self.containers]
        if any(it.end() and it.end()["exitCode"] for it in self.inits):
            self.phase = "Failed"
        elif all(ends):
            self.phase = "Failed" if any(it["exitCode"] for it in ends) else "Succeeded"

    def _end(self):
        """Says how it ended, and removes it when it is deleted."""
        if self.pause:
            self.node.release(self.address, self.pause)
            self.pause = None
        for container in [*self.inits, *self.containers]:
            container.remove_group()
        self.report()
        with self.wake:
            while self.grace is None:
                self.wake.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.node.remove(self.path, self.uid)
        self.node.forget(self)

    def report(self):
        self.node.report(self.path, self.uid, self.status())

    def status(self):
        is_ready = self.phase == "Running" and all("running" in it.state for it in self.containers)
        is_initialized = all(it.end() and it.end()["exitCode"] == 0 for it in self.inits)
        flags = {"Initialized": is_initialized, "Ready": is_ready, "ContainersReady": is_ready}
        addresses = {"podIP": self.address, "podIPs": [{"ip": self.address}]} if self.address else {}
        return {
            "phase": self.phase,
            "reason": self.reason,
            "message": self.message,
            "hostIP": self.node.address,
            "startTime": self.object["status"].get("startTime") or now(),
            **addresses,
            "conditions": [{"type": name, "status": str(value)} for name, value in flags.items()],
            "initContainerStatuses": [it.status() for it in self.inits],
            "containerStatuses": [it.status() for it in self.containers],
        }

    # What containers are given.

    def hostname(self):
        return self.spec.get("hostname") or self.name

    def enter(self):
        if self.pause is None:
            return []
        return ["nsenter", f"--target={self.pause.pid}", "--net", "--uts", "--ipc", "--"]

    def own_files(self):
        return {f"/etc/{name}": str(self.directory / name) for name in ("hosts", "hostname", "resolv.conf")}

    def mount(self, mount, environment):
        source = self.volumes[mount["name"]]
        if below := mount.get("subPath") or expanded(mount.get("subPathExpr", ""), environment):
            source = source / below
            if not source.exists():
                source.mkdir(parents=True)
        return {"source": str(source), "target": mount["mountPath"], "read_only": mount.get("readOnly", False)}

    def variables(self, container):
        found = {"HOSTNAME": self.hostname()}
        found |= {"KUBERNETES_SERVICE_HOST": self.node.api.host, "KUBERNETES_SERVICE_PORT": str(self.node.api.port)}
        for source in container.get("envFrom", []):
            kinds, key = ("secrets", "secretRef") if "secretRef" in source else ("configmaps", "configMapRef")
            data = self.content.data(kinds, source[key]["name"])
            found |= {source.get("prefix", "") + name: value.decode() for name, value in data.items()}
        for variable in container.get("env", []):
            found[variable["name"]] = self._value(variable, found)
        return found

    def _value(self, variable, found):
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable.get("value", ""), found)
        if "fieldRef" in source:
            return self.field(source["fieldRef"])
        kinds, key = ("secrets", "secretKeyRef") if "secretKeyRef" in source else ("configmaps", "configMapKeyRef")
        return self.content.data(kinds, source[key]["name"])[source[key]["key"]].decode()

    def field(self, reference):
        path = reference["fieldPath"]
        own = {"status.podIP": self.address, "status.hostIP": self.node.address}
        if path in own:
            return own[path]
        if member := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
            return self.object["metadata"].get(member[1], {}).get(member[2], "")
        value = self.object
        for part in path.split("."):
            value = value.get(part, "")
        return str(value)
