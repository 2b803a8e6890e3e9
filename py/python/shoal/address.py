"""This host's address."""

import os
import socket

__all__ = ["own_address"]


def own_address() -> str:
    """The address under which other hosts reach this one: an instance's in its job; elsewhere
    that of the route to the outside, or the loopback address without one.
    """
    instance = os.environ.get("SM_CURRENT_HOST")
    if instance:
        # Instances have no route to the outside, or one of another network than the job's.
        pairs = (pair.partition("=") for pair in os.environ.get("SHOAL_HOST_ADDRESSES", "").split(","))
        given = {name: address for name, _, address in pairs}
        try:
            return given.get(instance) or socket.gethostbyname(instance)
        except OSError:
            # The variable was set by hand.
            pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the address is of a network for documentation.
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
