"""This process's rank, from its launcher's variables: those of torchrun, of mpirun or
SageMaker's own. No framework is imported here.
"""

import json
import os
from collections.abc import MutableMapping

from smdistributed.dataparallel.exceptions import SMDDPConfigError

__all__ = ["complete", "is_distributed", "local_rank"]

LOCAL_RANK = "SMDATAPARALLEL_LOCAL_RANK"

#: The default port at which the ranks meet: SageMaker's.
PORT = "7777"

# What is asked for, and the names that launchers give it, best first.
_NAMES = {
    "RANK": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "WORLD_SIZE": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "LOCAL_RANK": ("LOCAL_RANK", LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "LOCAL_WORLD_SIZE": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}


def is_distributed(variables: MutableMapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process as one of a distributed job's."""
    return _told(variables, "RANK") is not None and _told(variables, "WORLD_SIZE") is not None


def local_rank(variables: MutableMapping[str, str] = os.environ) -> int:
    """This rank's number on its instance, from 0. Raises `SMDDPConfigError` if no launcher has
    told it.
    """
    told = _told(variables, "LOCAL_RANK")
    if told is None:
        raise SMDDPConfigError(
            f"no launcher has told the local rank: none of {', '.join(_NAMES['LOCAL_RANK'])} is set; start the script by torchrun or mpirun"
        )
    return int(told)


def complete(variables: MutableMapping[str, str] = os.environ) -> None:
    """Sets what torch's rendezvous and scripts read (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
    MASTER_PORT, SMDATAPARALLEL_LOCAL_RANK) where only the launcher's own names are set. What is
    set stays; a process without a launcher stays as it is.
    """
    if not is_distributed(variables):
        return
    for name in _NAMES:
        told = _told(variables, name)
        if told is not None:
            variables.setdefault(name, told)
    if "LOCAL_RANK" in variables:
        variables.setdefault(LOCAL_RANK, variables["LOCAL_RANK"])
    master = _master(variables)
    if master is not None:
        variables.setdefault("MASTER_ADDR", master)
        variables.setdefault("MASTER_PORT", PORT)


def _told(variables: MutableMapping[str, str], what: str) -> str | None:
    return next((variables[name] for name in _NAMES[what] if variables.get(name)), None)


def _master(variables: MutableMapping[str, str]) -> str | None:
    for name in ("MASTER_ADDR", "SM_MASTER_ADDR", "SMDATAPARALLEL_SERVER_ADDR"):
        if variables.get(name):
            return variables[name]
    hosts = json.loads(variables.get("SM_HOSTS") or "[]")
    if hosts:
        return sorted(hosts, key=lambda it: (len(it), it))[0]
    # All ranks are on this host.
    return "127.0.0.1" if variables.get("LOCAL_WORLD_SIZE") == variables["WORLD_SIZE"] else None
