"""This host's address."""

import socket

__all__ = ["own_address"]


def own_address() -> str:
    """The address under which other hosts reach this one: that of the route to the outside, or the loopback address without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the address is of a network for documentation.
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
