"""Which interfaces and addresses this machine has."""

import socket

from shoal.address import own_address

__all__ = ["get_driver_ip", "get_local_host_addresses", "get_local_intfs"]


def get_local_intfs(nic: str | None = None) -> set[str]:
    """The interfaces that this machine has; only `nic`, if it is given and there."""
    return {name for _, name in socket.if_nameindex() if nic in (None, name)}


def get_local_host_addresses() -> set[str]:
    """The addresses of this machine, as far as they are known without asking others."""
    return {"127.0.0.1", own_address()}


def get_driver_ip(nics=None) -> str:
    """The address under which other hosts reach the launcher; the interfaces are chosen by the
    system.
    """
    return own_address()
