"""A way back to training after a failure: the default process group made anew of the ranks that
live, without or with replacements of the others.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from shoal.address import own_address
from shoal.comm import Group, Operation

#: A group that was formed anew, for the backend that torch is about to ask for.
formed: Group | None = None
#: Where ranks of a default group that was formed anew meet for other groups.
meeting: dist.Store | None = None

#: Bytes of a text that says where a store is.
_PLACE = 256


def meet(group: Group, timeout: timedelta) -> dist.Store:
    """A new store, as the process that had the old one may be lost: rank 0 serves it and tells
    the others where.
    """
    place = torch.zeros(_PLACE, dtype=torch.uint8)
    store = None
    if group.rank == 0:
        host = os.environ.get("SHOAL_COMM_ADDRESS") or own_address()
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        text = f"{host} {store.port}".encode()
        place[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    group.run(Operation("broadcast", "u8", place.data_ptr(), place.data_ptr(), _PLACE))
    if store is None:
        host, port = bytes(place.tolist()).rstrip(b"\0").decode().split()
        store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
    return store


def renew(group: Group, timeout: timedelta) -> None:
    """Makes this the default process group. All others are gone, as torch has it, because ranks
    have other numbers.
    """
    global formed, meeting
    backend = dist.get_backend_config()
    store = meet(group, timeout)
    dist.destroy_process_group()
    formed = group
    try:
        dist.init_process_group(backend, store=store, rank=group.rank, world_size=group.size, timeout=timeout)
    finally:
        formed = None
    meeting = store
