"""What a server's training jobs may leave on the machine, looked for where it would be."""

import os
import pathlib


def processes(marker, but=()):
    """Command lines of processes that carry a marker in their command line or environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), *but):
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if marker.encode() in command or marker.encode() in (entry / "environ").read_bytes():
                found.append(command.replace(b"\0", b" ").decode(errors="replace").strip() or entry.name)
        except OSError:
            continue
    return found


def control_groups(marker):
    return [path for path, *_ in os.walk("/sys/fs/cgroup") if marker in os.path.basename(path)]


def mounts(data):
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(data) in line]


def of_jobs(house):
    """Everything that is left of training jobs while the server may still run; empty when all is well."""
    left = {
        "processes": processes(house.id, but=[house.pid]),
        "control groups": control_groups(house.id),
        "mounts": mounts(house.data),
        "runs": [path.name for path in (house.data / "runs").iterdir()],
    }
    return {what: items for what, items in left.items() if items}
