#!/usr/bin/env python3
"""A real Slurm cluster on this machine, for tests: munged, slurmctld, and nodes that are network, PID
and host name namespaces with a slurmd each; and slurmrestd, which accepts tokens. Needs root and
Debian's packages slurmctld, slurmd, slurm-client, slurmrestd, slurm-wlm-jwt-plugin and munge.

    slurm_cluster.py up DIRECTORY [NODES]      slurm_cluster.py down DIRECTORY

`up` prints the path of slurm.conf and the address of slurmrestd.
"""

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import machines
from machines import until

PROGRAMS = ["munged", "slurmctld", "slurmd", "slurmrestd", "sbatch", "srun", "scontrol", "ip", "unshare", "setpriv"]
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}({server})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={root}/jwt.key
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=6
MessageTimeout=4
KillWait=2
MinJobAge=300
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
"""
PARTITIONS = """
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100
PartitionName=short Nodes=ALL MaxTime=1 State=UP PriorityTier=10 OverTimeLimit=0
"""


PACKAGES = ["munge", "slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-jwt-plugin", "iproute2"]
#: As Debian's slurmrestd has it.
API = "v0.0.38"


def missing():
    """What keeps a cluster from being started here, if something does."""
    return machines.missing("Slurm", PROGRAMS, PACKAGES)


class Cluster:
    """Nodes n1 .. nN, each with 8 processors and 64 GiB by its own account. With `own_caches` each
    has its own cache; else all have this machine's. Caches in `disks` are file systems of that size.
    `gpus`: that many device nodes of each node count as GPUs.
    """

    def __init__(self, root, nodes=4, own_caches=False, disks=None, gpus=0):
        self.root, self.nodes, self.disks, self.gpus = pathlib.Path(root), nodes, disks or {}, gpus
        self.cache = self.root / "cache" if own_caches else None
        number = machines.number_of(self.root, "slm")
        self.network = machines.Network(f"slm{number}", f"10.214.{number}")
        self.server = self.network.here
        self.conf = self.root / "slurm.conf"
        self.rest_files = pathlib.Path(tempfile.gettempdir(), f"{self.network.tag}-rest")
        self.rest = f"http://{self.server}:6820"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": machines.PATH}

    def up(self):
        for name in ("state", "spool", "munge"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        (self.root / "munge").chmod(0o700)
        key = self.root / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.root / "jwt.key").write_bytes(os.urandom(32))
        (self.root / "jwt.key").chmod(0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(root=self.root, host=host, server=self.server, port=port)
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        for node in self.numbers():
            text += (
                f"NodeName=n{node} NodeHostname={host} NodeAddr={self.network.address(node)} Port={port - 1} CPUs=8 "
                f"RealMemory=65536 State=UNKNOWN{gres}\n"
            )
        self.conf.write_text(text + PARTITIONS)
        files = [self.root / f"nvidia{number}" for number in range(self.gpus)]
        for file in files:
            # As /dev/null is.
            os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.root / "gres.conf").write_text("".join(f"Name=gpu File={file}\n" for file in files))
        # slurmd looks for control groups, which nothing here uses, and takes this for an answer.
        (self.root / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
        hosts = [f"{self.network.address(node)} n{node}" for node in self.numbers()]
        (self.root / "hosts").write_text("\n".join(["127.0.0.1 localhost", f"{self.server} {host}", *hosts, ""]))
        self.network.up()
        self.call(
            "munged",
            "--force",
            f"--key-file={key}",
            *(f"--{name}={self.root}/munge/{file}" for name, file in [("socket", "socket"), ("pid-file", "pid")]),
            *(f"--{name}={self.root}/munge/{file}" for name, file in [("log-file", "log"), ("seed-file", "seed")]),
        )
        (self.root / "munge").chmod(0o711)
        self.start_controller()
        self.start_rest()
        for node in self.numbers():
            self.start_node(node)
        self.until_idle()
        return self

    def until_idle(self):
        idle = lambda: self.call("sinfo", "-hN", "-p", "main", "-t", "idle").splitlines()
        until("all nodes are idle", lambda: len(idle()) == self.nodes)

    def settings(self, address=None, rest=False):
        """For shoal.toml: all jobs run here. `address`: this machine's, as agents are to use it;
        `rest`: by slurmrestd, and not by Slurm's commands.
        """
        cache = f'cache = "{self.cache}"\n' if self.cache else ""
        token = 'token_command = ["scontrol", "token", "lifespan=3600"]'
        by_rest = f'rest = "{self.rest}"\n{token}\n' if rest else ""
        return f"""
default_target = "cluster"
agents_listen = "0.0.0.0:0"
agents_address = "{address or self.server}"
[target.cluster]
kind = "slurm"
conf = "{self.conf}"
{cache}{by_rest}"""

    def numbers(self):
        return range(1, self.nodes + 1)

    def call(self, *words):
        """A command of Slurm's."""
        done = subprocess.run(list(map(str, words)), env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    def start_controller(self):
        subprocess.run(["slurmctld", "-f", self.conf], env=self.environment, check=True, capture_output=True)
        until("the controller answers", lambda: "UP" in self.call("scontrol", "ping"))

    def kill_controller(self):
        """When it has saved its state, which it does some seconds after each change."""
        before = time.time()
        # It saves nothing where nothing has changed.
        held = self.call("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true").strip()
        self.call("scancel", held)
        until("its state is saved", lambda: (self.root / "state/job_state").stat().st_mtime > before)
        pid = int((self.root / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until("the controller is gone", lambda: not pathlib.Path(f"/proc/{pid}").exists())

    def start_rest(self):
        """slurmrestd runs as neither root nor SlurmUser, and reads nothing below `root`."""
        self.rest_files.mkdir(exist_ok=True)
        self.rest_files.chmod(0o755)
        conf = shutil.copy(self.conf, self.rest_files)
        ordinary = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        address = self.rest.removeprefix("http://")
        command = [*ordinary, "slurmrestd", "-f", conf, "-a", "rest_auth/jwt", "-s", f"openapi/{API}", address]
        with open(self.root / "slurmrestd.log", "ab") as log:
            process = subprocess.Popen(
                list(map(str, command)),
                env={**self.environment, "SLURM_CONF": str(conf), "SLURM_JWT": "daemon"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.root / "slurmrestd.pid").write_text(str(process.pid))
        host, port = address.split(":")

        def answers():
            with socket.socket() as client:
                return client.connect_ex((host, int(port))) == 0

        until("slurmrestd listens", answers)

    def kill_rest(self):
        """It ends on no other signal."""
        pid = int((self.root / "slurmrestd.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until("slurmrestd is gone", lambda: machines.is_over(pid))

    def start_node(self, node):
        netns = self.network.machine(node)
        address = f"{self.network.address(node)}/24"
        machines.run("ip", "-n", netns, "address", "replace", address, "dev", "eth0")
        (self.root / f"spool/n{node}").mkdir(exist_ok=True)
        # slurmd is the only child of a PID namespace: who kills that namespace's parent takes all of
        # the node's processes along, as when a machine loses power.
        script = 'hostname "$1"; mount --bind "$2" /etc/hosts; '
        words = ["node", f"n{node}", self.root / "hosts", self.conf]
        if self.cache:
            own = self.root / f"cache-n{node}"
            for directory in (own, self.cache):
                directory.mkdir(exist_ok=True)
            if node in self.disks and not own.is_mount():
                machines.run("mount", "-t", "tmpfs", "-o", f"size={self.disks[node]}", "tmpfs", own)
            script += 'mount --bind "$4" "$5"; '
            words += [own, self.cache]
        script += 'exec slurmd -D -f "$3" -N "$1"'
        alone = ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child=KILL", "/bin/sh", "-c", script]
        command = ["ip", "netns", "exec", netns, *alone, *words]
        with open(self.root / f"node.{node}.out", "ab") as out:
            process = subprocess.Popen(
                list(map(str, command)),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        (self.root / f"node.{node}.pid").write_text(str(process.pid))

    def kill_node(self, node):
        """As when a machine loses power."""
        pid = self.root / f"node.{node}.pid"
        try:
            os.kill(int(pid.read_text()), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return
        pid.unlink()

    def down(self):
        for job in self.call("squeue", "-h", "-o", "%A").split():
            self.call("scancel", "--full", "--signal=KILL", job)
        for node in self.numbers():
            self.kill_node(node)
        for pid in (self.root / "slurmrestd.pid", self.root / "slurmctld.pid", self.root / "munge/pid"):
            if pid.exists():
                try:
                    os.kill(int(pid.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.rest_files, ignore_errors=True)
        for node in self.disks:
            machines.run("umount", "--lazy", self.root / f"cache-n{node}", check=False)
        self.network.down(self.numbers())


def main():
    verb, root, *nodes = sys.argv[1:]
    cluster = Cluster(root, *map(int, nodes))
    if verb == "up":
        problem = missing()
        if problem:
            sys.exit(problem)
        cluster.up()
        print(cluster.conf, cluster.rest, sep="\n")
    else:
        cluster.down()


if __name__ == "__main__":
    main()
