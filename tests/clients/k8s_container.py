"""Runs one container for the tests' node agent (k8s_node.py). Its only child is process 1 of a PID
namespace, which makes its root of an image, mounts, takes rights away, and becomes the container's
program; the exit code is that program's.

    k8s_container.py SPECIFICATION.json

As container runtimes do: a writable layer that goes away, capabilities of a container, /proc/sys and
/sys read-only. Not as they do: no seccomp filter, no limits of processors.
"""

import ctypes
import json
import os
import pathlib
import signal
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE, NOSUID, NODEV = 1, 32, 4096, 16384, 1 << 18, 2, 4
DETACH = 2
PIVOT_ROOT = 155
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
NEW_MOUNTS, NEW_PIDS = 0x20000, 0x20000000
#: What containerd and docker leave a container: chown, dac_override, fowner, fsetid, kill, setgid,
#: setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
KEPT = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
#: An image starts with these empty, whatever the machine has there.
EMPTY = ["tmp", "run", "mnt"]


def mount(source, target, kind=None, flags=0, data=None):
    words = [None if word is None else str(word).encode() for word in (source, target, kind, data)]
    if LIBC.mount(words[0], words[1], words[2], flags, words[3]):
        raise OSError(ctypes.get_errno(), f"mount {kind or 'bind'} {source} on {target}")


def bind(source, target, is_read_only=False):
    if pathlib.Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, flags=BIND | RECURSIVE)
    if is_read_only:
        mount(None, target, flags=BIND | REMOUNT | READ_ONLY)


def inside(root, path):
    """A path as it is with this root, whose symbolic links may be absolute."""
    left, at = list(reversed(path.split("/"))), root
    while left:
        part = left.pop()
        step = at / part
        if part in ("", "."):
            continue
        if part == "..":
            at = at.parent if at != root else at
        elif step.is_symlink():
            target = os.readlink(step)
            at = root if target.startswith("/") else at
            left += reversed(target.split("/"))
        else:
            at = step
    return at


def make_root(spec, place):
    """The image with a writable layer, and what every container has."""
    mount(None, "/", flags=RECURSIVE | PRIVATE)
    mount("tmpfs", place, "tmpfs")
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    root = place / "root"
    layers = f"lowerdir={spec['image']},upperdir={place}/upper,workdir={place}/work"
    mount("overlay", root, "overlay", data=layers)
    for name in EMPTY:
        (root / name).mkdir(exist_ok=True)
        mount("tmpfs", root / name, "tmpfs", NOSUID | NODEV, "mode=1777" if name == "tmp" else "mode=755")
    for name in ("proc", "sys", "dev"):
        (root / name).mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc")
    bind("/proc/sys", root / "proc/sys", True)
    mount("sysfs", root / "sys", "sysfs", READ_ONLY)
    make_devices(root / "dev")
    for target, source in spec["files"].items():
        bind(source, inside(root, target), True)
    for path in spec["binds"]:
        bind(path, inside(root, path))
    for volume in spec["mounts"]:
        bind(volume["source"], inside(root, volume["target"]), volume["read_only"])
    if spec["is_read_only"]:
        volumes = {inside(root, it["target"]) for it in spec["mounts"]}
        for path in {root, *(root / name for name in EMPTY)} - volumes:
            mount(None, path, flags=BIND | REMOUNT | READ_ONLY)
    return root


def make_devices(dev):
    mount("tmpfs", dev, "tmpfs", NOSUID, "mode=755")
    for name in DEVICES:
        (dev / name).touch()
        mount(f"/dev/{name}", dev / name, flags=BIND)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    mount("devpts", dev / "pts", "devpts", NOSUID, "newinstance,ptmxmode=0666,mode=0620")
    mount("shm", dev / "shm", "tmpfs", NOSUID | NODEV, "mode=1777,size=64m")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{number}" for number, name in enumerate(["stdin", "stdout", "stderr"])}
    for name, target in links.items():
        (dev / name).symlink_to(target)


def enter(root):
    """A root that is not a chroot: in one of those no user namespace can be made."""
    os.chdir(root)
    if LIBC.syscall(PIVOT_ROOT, b".", b"."):
        raise OSError(ctypes.get_errno(), "pivot_root")
    if LIBC.umount2(b".", DETACH):
        raise OSError(ctypes.get_errno(), "umount of the old root")
    os.chdir("/")


def drop_rights(spec):
    last = int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in set(range(last + 1)) - KEPT if not spec["privileged"] else ():
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(spec["groups"])
    if spec["group"] is not None:
        os.setgid(spec["group"])
    if spec["user"] is not None:
        os.setuid(spec["user"])
    if not spec["may_gain_privileges"]:
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def become(path):
    """The program of a specification."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    spec = json.loads(path.read_text())
    place = path.parent / f"{path.stem}.root"
    failed = os.open(path.with_suffix(".failed"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if spec["control_group"]:
            pathlib.Path(spec["control_group"], "cgroup.procs").write_text("0")
        place.mkdir(exist_ok=True)
        enter(make_root(spec, place))
        os.makedirs(spec["cwd"], exist_ok=True)
        drop_rights(spec)
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except Exception as error:  # the node agent reports it as StartError
        os.write(failed, f"failed to start {spec['argv'][0]!r}: {error}".encode())
        os._exit(128)


def main():
    if LIBC.unshare(NEW_MOUNTS | NEW_PIDS):
        raise OSError(ctypes.get_errno(), "unshare")
    child = os.fork()
    if child == 0:
        become(pathlib.Path(sys.argv[1]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
