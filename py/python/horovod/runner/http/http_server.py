"""The launcher's port, under the name that programs know it by. It speaks lines of JSON, not
HTTP: see `horovod.runner.elastic.rendezvous`.
"""

from horovod.runner.elastic.rendezvous import RendezvousServer

__all__ = ["RendezvousServer"]
