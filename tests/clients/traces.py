"""What a server's training jobs have, and may leave, on the machine: looked for where it would
be.
"""

import os
import pathlib

from house import eventually

PROC = pathlib.Path("/proc")


def _all_processes():
    """`{pid: (parent, command line, command line and environment)}`; of those that may be looked
    at.
    """
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                found[int(entry.name)] = (parent, command, command + (entry / "environ").read_bytes())
            except OSError:
                continue
    return found


def processes(house):
    """`{pid: words}` of what the server has started: all that carries its directory's id or
    path, and all below that.
    """
    everything = _all_processes()
    marks = (house.id.encode(), str(house.data).encode())
    ours = {pid for pid, (_, _, text) in everything.items() if any(mark in text for mark in marks)} - {
        house.pid,
        os.getpid(),
    }
    before = set()
    while before != ours:
        before = ours
        ours = ours | {pid for pid, (parent, *_) in everything.items() if parent in ours}
    return {pid: everything[pid][1].decode(errors="replace").split("\0")[:-1] for pid in ours}


def agents(house):
    """`{host: pid}` of the running agents."""
    words = {pid: words for pid, words in processes(house).items() if words[1:2] == ["agent"] and "--host" in words}
    return {int(it[it.index("--host") + 1]): pid for pid, it in words.items()}


def agents_of_all(house):
    """Ids of the running agents of all attempts."""
    return [pid for pid, words in processes(house).items() if words[1:2] == ["agent"] and "--host" in words]


def ranks(house):
    """Ids of the processes that are training programs made by `Jobs.command`."""
    shells = {pid for pid, words in processes(house).items() if words[:2] == ["/bin/sh", "-c"]}
    # A shell's fork is one, too, until it runs its command.
    return [pid for pid, (parent, *_) in _all_processes().items() if pid in shells and parent not in shells]


def identities(pids):
    """`{(pid, start time)}`: a process for all times."""
    return {(pid, (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[19]) for pid in pids}


def parent(pid):
    return int((PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])


def programs(house, word):
    """Ids of the processes that are training programs with this word in their command."""
    return [pid for pid, words in processes(house).items() if word in words]


def inits(house):
    """`{host: pid}` of the first processes of instances."""
    found = {pid: words[0] for pid, words in processes(house).items() if words and words[0].startswith("shoal-init")}
    return {int(name.rsplit("-", 1)[1]): pid for pid, name in found.items()}


def init_below(agent):
    """Id of the first process of an agent's instance, or None: a quick look, for those who wait
    for its beginning.
    """
    for task in (PROC / str(agent) / "task").iterdir():
        try:
            for pid in (task / "children").read_text().split():
                if (PROC / pid / "cmdline").read_bytes().startswith(b"shoal-init"):
                    return int(pid)
        except OSError:
            continue
    return None


def _namespaces(pid):
    found = set()
    for kind in ("net", "mnt", "pid", "user", "uts", "ipc"):
        try:
            found.add(os.readlink(PROC / str(pid) / "ns" / kind))
        except OSError:
            continue
    return found


def namespaces(house):
    """Those that instances live in and we do not."""
    found = set()
    for pid in processes(house):
        found |= _namespaces(pid)
    return found - _namespaces("self")


def users_of(namespaces):
    """Processes and mounts that keep one of these namespaces."""
    processes = [
        f"process {entry.name}"
        for entry in PROC.iterdir()
        if entry.name.isdigit() and _namespaces(entry.name) & namespaces
    ]
    mounts = [
        line for line in (PROC / "self/mountinfo").read_text().splitlines() if any(name in line for name in namespaces)
    ]
    return processes + mounts


def control_groups(house):
    return [path for path, *_ in os.walk("/sys/fs/cgroup") if house.id in os.path.basename(path)]


def mounts(house):
    return [
        line
        for line in (PROC / "self/mountinfo").read_text().splitlines()
        if str(house.data) in line or house.id in line
    ]


def sockets(house):
    """Connections of agents that the server holds."""
    held = set()
    for descriptor in (PROC / str(house.pid) / "fd").glob("*"):
        try:
            held.add(os.readlink(descriptor))
        except OSError:
            continue
    lines = [line.split() for line in (PROC / "net/unix").read_text().splitlines()]
    listening = "00010000"
    return [
        line[-1]
        for line in lines
        if f"socket:[{line[6]}]" in held and line[-1].endswith("/link.sock") and line[3] != listening
    ]


def files(house):
    """Run directories and trees of channels."""
    return [
        str(path.relative_to(house.data)) for name in ("runs", "channels") for path in (house.data / name).iterdir()
    ]


def of_jobs(house, namespaces=frozenset()):
    """Everything that is left of training jobs while the server may still run; empty when all is
    well.
    """
    left = {
        "processes": list(processes(house).values()),
        "namespaces": users_of(namespaces),
        "control groups": control_groups(house),
        "mounts": mounts(house),
        "sockets": sockets(house),
        "files": files(house),
    }
    return {what: items for what, items in left.items() if items}


def nothing_left(house, namespaces=frozenset()):
    """Waits until nothing is left of training jobs, and says what is."""
    last = {}

    def looked():
        last.clear()
        last.update(of_jobs(house, namespaces))
        return not last

    try:
        eventually(looked)
    except AssertionError:
        assert last == {}
