"""What the tests' clusters (Slurm's, Kubernetes') have in common: machines that are network
namespaces on a bridge of this one, and the packages of the distribution that run there.
"""

import os
import pathlib
import shutil
import subprocess
import time

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def run(*words, check=True):
    return subprocess.run(list(map(str, words)), check=check, capture_output=True, text=True)


def until(what, is_so, seconds=30):
    end = time.monotonic() + seconds
    while not (last := is_so()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return last


def is_over(pid):
    """Ended, be it that its parent has not noticed."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def lacks(programs):
    return [program for program in programs if shutil.which(program, path=PATH) is None]


def missing(what, programs, packages):
    """What keeps a cluster from being started here, if something does. Packages are installed if
    this machine lets us.
    """
    if os.getuid() != 0:
        return "needs root"
    if lacks(programs) and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # Another test may install something at the same time.
        apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
        for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            subprocess.run([*apt, *command], check=False, env=environment, stdout=subprocess.DEVNULL)
    if lacks(programs):
        return f"needs {what} ({' '.join(packages)}): there is no {', '.join(lacks(programs))}"
    return None


def number_of(root, tag):
    """What keeps the cluster in a directory apart from others of this machine; the same in each call."""
    path = pathlib.Path(root, "number")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        candidates = ((os.getpid() + step) % 250 for step in range(250))
        is_free = lambda number: run("ip", "link", "show", f"{tag}{number}", check=False).returncode != 0
        path.write_text(str(next(filter(is_free, candidates))))
    return int(path.read_text())


class Network:
    """A bridge, and machines on it that can be cut off. `tag` names all of it, `prefix` is the
    first three numbers of the addresses; this machine is number 254.
    """

    def __init__(self, tag, prefix):
        self.tag, self.prefix = tag, prefix
        self.here = f"{prefix}.254"
        #: This machine, too: what leads there can be cut alone.
        self.here_too = f"{prefix}.253"

    def up(self):
        run("ip", "link", "add", self.tag, "type", "bridge")
        for address in (self.here, self.here_too):
            run("ip", "address", "add", f"{address}/24", "dev", self.tag)
        run("ip", "link", "set", self.tag, "up")

    def address(self, number):
        return f"{self.prefix}.{number}"

    def namespace(self, number):
        return f"{self.tag}-{number}"

    def machine(self, number):
        """The namespace of a machine with `eth0` on the bridge, which has no address yet; made if
        there is none.
        """
        namespace, inside = self.namespace(number), f"{self.tag}v{number}"
        if not pathlib.Path("/run/netns", namespace).exists():
            run("ip", "netns", "add", namespace)
            run("ip", "link", "add", inside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            run("ip", "link", "set", inside, "master", self.tag, "up")
            for name in ("eth0", "lo"):
                run("ip", "-n", namespace, "link", "set", name, "up")
        return namespace

    def cut(self, number, is_cut=True):
        """Nothing passes between a machine and the others; or does again."""
        run("ip", "link", "set", f"{self.tag}v{number}", "down" if is_cut else "up")

    def cut_to(self, number, address, is_cut=True):
        """Nothing that a machine sends reaches an address; or does again."""
        verb = "replace" if is_cut else "delete"
        run("ip", "-n", self.namespace(number), "route", verb, "blackhole", f"{address}/32")

    @staticmethod
    def cut_process_to(pid, address, is_cut=True):
        """The same for what shares the network of a process, such as a pod."""
        verb = "replace" if is_cut else "delete"
        run("nsenter", f"--target={pid}", "--net", "ip", "route", verb, "blackhole", f"{address}/32")

    def down(self, numbers):
        for number in numbers:
            run("ip", "netns", "delete", self.namespace(number), check=False)
        run("ip", "link", "delete", self.tag, check=False)
