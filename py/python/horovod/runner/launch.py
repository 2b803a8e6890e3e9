"""`horovodrun`: starts a program's ranks on this machine and others, passes their output on, and
ends all when one fails.
"""

import argparse
import os
import socket
import sys
from secrets import token_hex

from horovod.runner import settings
from horovod.runner.hosts import HostInfo, SlotInfo, get_host_assignments, is_local, parse_host_file, parse_hosts
from horovod.runner.workers import Workers


def parser() -> argparse.ArgumentParser:
    """The options of `horovodrun`."""
    from horovod import __version__

    it = argparse.ArgumentParser(
        "horovodrun", description="Starts the ranks of a Horovod program on Shoal's process groups."
    )
    it.add_argument(
        "-v", "--version", action="version", version=__version__, help="the version of Horovod whose interface this is"
    )
    it.add_argument(
        "-np",
        "--num-proc",
        type=int,
        dest="num_proc",
        help="how many ranks; as many as the hosts have slots, or one, without",
    )
    it.add_argument(
        "-cb",
        "--check-build",
        action="store_true",
        dest="check_build",
        help="says which frameworks and libraries there are",
    )
    it.add_argument(
        "--disable-cache", action="store_true", help="accepted: no checks are kept from one start to the next"
    )
    it.add_argument(
        "--start-timeout", type=int, help="seconds within which all ranks have to meet; 30, or HOROVOD_START_TIMEOUT"
    )
    it.add_argument(
        "--network-interfaces",
        "--network-interface",
        dest="nics",
        type=lambda text: text.split(","),
        help="interfaces, by comma, to use between hosts",
    )
    it.add_argument("--output-filename", help="writes what ranks say to FILE/rank.N/stdout and stderr, too")
    it.add_argument("--verbose", action="store_true", help="says what is started")
    it.add_argument("--config-file", help="a YAML file with options")
    it.add_argument("-p", "--ssh-port", type=int, help="port of sshd on the other hosts")
    it.add_argument("-i", "--ssh-identity-file", help="private key for the other hosts")
    it.add_argument("-H", "--hosts", help="hosts and their slots: host1:2,host2:4")
    it.add_argument("-hostfile", "--hostfile", help="a file with lines such as: host1 slots=2")
    _add_parameters(it)
    _add_elastic(it)
    control = it.add_mutually_exclusive_group()
    control.add_argument(
        "--gloo", action="store_true", dest="use_gloo", help="accepted: ranks meet by themselves, without Gloo"
    )
    control.add_argument(
        "--mpi",
        action="store_true",
        dest="use_mpi",
        help="accepted: ranks are started in the same way; use mpirun itself for its options",
    )
    control.add_argument(
        "--jsrun", action="store_true", dest="use_jsrun", help="refused: use --hosts, or mpirun of the cluster"
    )
    it.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return it


def _add_parameters(it: argparse.ArgumentParser) -> None:
    part = it.add_argument_group("tuning", "passed on as HOROVOD_* variables")
    part.add_argument(
        "--fusion-threshold-mb", type=int, help="the largest message that small tensors are packed into (128)"
    )
    part.add_argument("--cycle-time-ms", type=float, help="how long to wait for more tensors")
    part.add_argument("--cache-capacity", type=int, help="accepted")
    for name in ("hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce"):
        _switch(part, name, "accepted: the process groups choose by the hosts and what they measured")
    _switch(part, "autotune", "accepted: the process groups measure when they are made")
    for name, kind in (
        ("log-file", str),
        ("warmup-samples", int),
        ("steps-per-sample", int),
        ("bayes-opt-max-samples", int),
        ("gaussian-process-noise", float),
    ):
        part.add_argument(f"--autotune-{name}", type=kind, help="accepted")
    part.add_argument("--num-nccl-streams", type=int, help="accepted")
    part.add_argument("--thread-affinity", help="accepted")
    part.add_argument("--gloo-timeout-seconds", type=int, help="seconds that an operation may take")
    _switch(part, "mpi-threads-disable", "accepted")
    part.add_argument("--mpi-args", help="refused with a sentence: use mpirun itself")
    part.add_argument(
        "--tcp", action="store_true", dest="tcp_flag", help="no shared memory between the ranks of a host"
    )
    part.add_argument("--binding-args", help="accepted")
    told = it.add_argument_group("what is going on")
    told.add_argument("--timeline-filename", help="writes a timeline for chrome://tracing")
    _switch(told, "timeline-mark-cycles", "marks cycles in it")
    told.add_argument(
        "--no-stall-check", action="store_true", default=None, help="says nothing of ranks that wait for others"
    )
    told.add_argument("--stall-check", action="store_false", dest="no_stall_check", help=argparse.SUPPRESS)
    told.add_argument("--stall-check-warning-time-seconds", type=int, help="seconds until that is said (60)")
    told.add_argument(
        "--stall-check-shutdown-time-seconds", type=int, help="seconds until it ends the program (0: never)"
    )
    told.add_argument("--log-level", choices=["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"], help="accepted")
    told.add_argument("--log-with-timestamp", action="store_true", default=None, help=argparse.SUPPRESS)
    told.add_argument(
        "--log-without-timestamp",
        "--log-hide-timestamp",
        action="store_false",
        dest="log_with_timestamp",
        help=argparse.SUPPRESS,
    )
    told.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        dest="prefix_output_with_timestamp",
        help="time before each line",
    )


def _add_elastic(it: argparse.ArgumentParser) -> None:
    part = it.add_argument_group("elastic")
    part.add_argument(
        "--min-np", "--min-num-proc", type=int, dest="min_num_proc", help="training goes on with so many ranks"
    )
    part.add_argument("--max-np", "--max-num-proc", type=int, dest="max_num_proc", help="no more ranks than that")
    part.add_argument(
        "--slots-per-host", "--slots", type=int, dest="slots", help="ranks on hosts that are named without a number"
    )
    part.add_argument(
        "--host-discovery-script", help="a program that prints the hosts there are, host:slots in a line each"
    )
    part.add_argument("--elastic-timeout", type=int, help="seconds to wait for enough ranks (600)")
    part.add_argument("--reset-limit", type=int, help="how often the number of ranks may change")
    part.add_argument(
        "--blacklist-cooldown-range",
        type=int,
        nargs=2,
        dest="cooldown_range",
        help="seconds, least and most, that a host which failed is left out",
    )


def _switch(part, name: str, text: str) -> None:
    both = part.add_mutually_exclusive_group()
    both.add_argument(f"--{name}", action="store_true", default=None, help=text)
    both.add_argument(f"--no-{name}", action="store_false", dest=name.replace("-", "_"), help=argparse.SUPPRESS)


def hosts_of(options: argparse.Namespace) -> list[HostInfo]:
    """The named hosts; this machine if none is named."""
    if options.hosts and options.hostfile:
        raise ValueError("--hosts and --hostfile: give only one of them")
    if options.hostfile:
        return parse_host_file(options.hostfile)
    if options.hosts:
        return parse_hosts(options.hosts)
    return [HostInfo("localhost", options.num_proc or 1)]


def only_here(options: argparse.Namespace) -> bool:
    """Whether all hosts are this machine."""
    return not elastic(options) and all(is_local(it.hostname) for it in hosts_of(options))


def elastic(options: argparse.Namespace) -> bool:
    """Whether ranks may come and go."""
    return (
        options.host_discovery_script is not None
        or options.min_num_proc is not None
        or options.max_num_proc is not None
    )


def start(options: argparse.Namespace, secrets: dict[str, str] | None = None, handles_signals: bool = True) -> int:
    """Starts the ranks and waits for them. The first failed one's exit code, or 0. `secrets`:
    variables that must not appear in process lists.
    """
    if options.use_jsrun:
        raise ValueError(
            "--jsrun is not offered: start the ranks with --hosts, or by the mpirun of the cluster, whose variables are read"
        )
    if options.mpi_args:
        raise ValueError(
            f"--mpi-args {options.mpi_args!r}: no mpirun is started here; start the program by mpirun itself, whose variables are read"
        )
    if options.use_mpi:
        print(
            "horovodrun: --mpi: ranks are started without MPI, and use Shoal's process groups; mpi4py needs mpirun itself",
            file=sys.stderr,
        )
    variables = {**settings.to_environment(options), **(secrets or {})}
    if options.tcp_flag:
        variables["SHOAL_COMM_TRANSPORT"] = "tcp"
    if options.start_timeout is not None:
        variables["HOROVOD_START_TIMEOUT"] = variables["SHOAL_COMM_PATIENCE"] = str(options.start_timeout)
    if options.gloo_timeout_seconds is not None:
        variables["SHOAL_COMM_DEADLINE"] = str(options.gloo_timeout_seconds)
    if elastic(options):
        from horovod.runner import elastic as driver

        options.environment = variables
        return driver.main(options)
    hosts = hosts_of(options)
    slots = get_host_assignments(hosts, options.num_proc or sum(it.slots for it in hosts))
    address, port = meeting(slots)
    secret = os.environ.get("SHOAL_COMM_SECRET") or token_hex(16)
    there = {
        **variables,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "SHOAL_COMM_SECRET": secret,
    }
    return Workers(
        slots, options.command, [{**there, **place_variables(it)} for it in slots], options, handles_signals
    ).wait()


def place_variables(slot: SlotInfo) -> dict[str, str]:
    """The variables that tell a rank its place."""
    return {
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_HOSTNAME": slot.hostname,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


def meeting(slots: list[SlotInfo]) -> tuple[str, int]:
    """Where the ranks meet: a port of the first rank's host, which that rank opens."""
    first = slots[0].hostname
    if not is_local(first):
        # Free ports there are unknown; this one is outside of the range of ephemeral ports.
        return first, 20000 + os.getpid() % 10000
    with socket.socket() as it:
        it.bind(("", 0))
        port = it.getsockname()[1]
    if all(is_local(it.hostname) for it in slots):
        return "127.0.0.1", port
    return (socket.gethostbyname(socket.gethostname()) if first in ("localhost", "127.0.0.1") else first), port


def check_build() -> str:
    """A report of the available frameworks and libraries."""
    from horovod import __version__
    from horovod.common.util import extension_available

    def mark(there: bool) -> str:
        return "[X]" if there else "[ ]"

    lines = [f"Horovod v{__version__} (Shoal's process groups):", "", "Available Frameworks:"]
    lines += [
        f"    {mark(extension_available(name))} {text}"
        for name, text in (("tensorflow", "TensorFlow"), ("torch", "PyTorch"), ("mxnet", "MXNet"))
    ]
    lines += ["", "Available Controllers:", "    [X] MPI", "    [X] Gloo", "", "Available Tensor Operations:"]
    try:
        import torch

        nccl = torch.version.cuda is not None and torch.distributed.is_nccl_available()
    except ImportError:
        nccl = False
    lines += [f"    {mark(nccl)} NCCL", "    [ ] DDL", "    [ ] CCL", "    [ ] MPI", "    [X] Gloo"]
    return "\n".join(lines)


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of `horovodrun`, from these arguments or this process's, and from the file
    that they name.
    """
    options = parser().parse_args(arguments)
    if options.config_file:
        settings.read_file(options.config_file, options)
    if options.command and options.command[0] == "--":
        options.command = options.command[1:]
    return options


def _run_elastic(args: argparse.Namespace) -> None:
    """Runs an elastic job by these options. `RuntimeError` if it failed. Programs that test
    elastic training with Horovod's own launcher call it by this name.
    """
    from horovod.runner.elastic.launcher import run_elastic, settings_of

    run_elastic(settings_of(args), getattr(args, "environment", {}), args.command)


def main(arguments: list[str] | None = None) -> int:
    """`horovodrun`. The exit code: the first failed rank's, 2 for what cannot be started."""
    it = parser()
    options = parse_args(arguments)
    if options.check_build:
        print(check_build())
        return 0
    if not options.command:
        it.error("give the program to start, such as: horovodrun -np 2 python train.py")
    if options.num_proc is not None and options.num_proc < 1:
        it.error(f"-np {options.num_proc}: at least one rank is needed")
    try:
        return start(options)
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return 2


def run_commandline() -> None:
    """The entry point of the command `horovodrun`."""
    sys.exit(main())


if __name__ == "__main__":
    run_commandline()
