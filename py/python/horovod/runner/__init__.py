"""Starting Horovod programs: `horovod.run` from Python, `horovodrun` from a shell."""

import sys
import threading
import warnings
from collections.abc import Callable

__all__ = ["run"]


def run(
    func: Callable,
    args=(),
    kwargs=None,
    num_proc=None,
    min_num_proc=None,
    max_num_proc=None,
    slots=None,
    reset_limit=None,
    cooldown_range=None,
    hosts=None,
    hostfile=None,
    host_discovery_script=None,
    start_timeout=None,
    ssh_port=None,
    ssh_identity_file=None,
    disable_cache=None,
    output_filename=None,
    verbose=None,
    use_gloo=None,
    use_mpi=None,
    mpi_args=None,
    network_interface=None,
    network_interfaces=None,
    executable=None,
    np=None,
    min_np=None,
    max_np=None,
) -> list:
    """Calls `func(*args, **kwargs)` in `num_proc` new processes that are each other's ranks, and
    gives what it returned, in rank order.

    hosts: such as `host1:2,host2:4`, this one without. func and what it returns go between
    processes, pickled by cloudpickle where it is there. `RuntimeError` names the first process that
    failed, with its traceback. The other arguments are those of `horovodrun`; `np`, `min_np` and
    `max_np` are older names.
    """
    from horovod.runner import calls, launch

    for old, new in (("np", "num_proc"), ("min_np", "min_num_proc"), ("max_np", "max_num_proc")):
        if locals()[old] is not None:
            warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
    num_proc = np if num_proc is None else num_proc
    min_num_proc = min_np if min_num_proc is None else min_num_proc
    max_num_proc = max_np if max_num_proc is None else max_num_proc
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    options = launch.parser().parse_args([])
    given = {
        "num_proc": 1 if num_proc is None and min_num_proc is None and host_discovery_script is None else num_proc,
        "min_num_proc": min_num_proc,
        "max_num_proc": max_num_proc,
        "slots": slots,
        "reset_limit": reset_limit,
        "cooldown_range": cooldown_range,
        "hosts": hosts,
        "hostfile": hostfile,
        "host_discovery_script": host_discovery_script,
        "start_timeout": start_timeout,
        "ssh_port": ssh_port,
        "ssh_identity_file": ssh_identity_file,
        "disable_cache": bool(disable_cache),
        "output_filename": output_filename,
        "verbose": bool(verbose),
        "use_gloo": bool(use_gloo),
        "use_mpi": bool(use_mpi),
        "mpi_args": mpi_args,
        "nics": _interfaces(network_interfaces if network_interfaces is not None else network_interface),
    }
    for name, value in given.items():
        setattr(options, name, value)
    with calls.Call(func, tuple(args), dict(kwargs or {}), local=launch.only_here(options)) as call:
        options.command = [executable or sys.executable, "-m", "horovod.runner.run_task", call.address]
        secret = {calls.SECRET: call.secret}
        code = launch.start(options, secret, handles_signals=threading.current_thread() is threading.main_thread())
        return call.results(code)


def _interfaces(names) -> list[str] | None:
    if names is None:
        return None
    return [it for it in (names.split(",") if isinstance(names, str) else list(names)) if it]
