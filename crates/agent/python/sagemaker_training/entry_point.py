"""Instances find each other before a script runs; what waited for that in SageMaker's images
returns at once.
"""

import os
import socket
import time

from sagemaker_training import environment

_PATIENCE_S = 900


def _wait_hostname_resolution() -> None:
    """Returns when the names of all instances have addresses."""
    known = dict(pair.split("=", 1) for pair in os.environ.get("SHOAL_HOST_ADDRESSES", "").split(",") if "=" in pair)
    until = time.monotonic() + _PATIENCE_S
    for host in environment.Environment().hosts:
        while host not in known:
            try:
                known[host] = socket.gethostbyname(host)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
