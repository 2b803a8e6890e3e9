"""How an elastic job is to run."""

from typing import Any


class ElasticSettings:
    """Settings of an elastic job; other options of `horovodrun` (`verbose`, `ssh_port`, ...) are
    kept as they are given.

    discovery: a `HostDiscovery`. min_num_proc, max_num_proc: bounds of the number of workers.
    elastic_timeout: seconds to wait for the least number of slots. reset_limit: how often the world
    may change. cooldown_range: least and greatest seconds for which a failed host is left out;
    None: for good.
    """

    def __init__(
        self,
        discovery,
        min_num_proc: int | None,
        max_num_proc: int | None,
        elastic_timeout: float | None,
        reset_limit: int | None,
        cooldown_range: tuple[int, int] | None = None,
        **kwargs: Any,
    ):
        self.elastic = True
        self.discovery = discovery
        self.min_num_proc = min_num_proc
        self.max_num_proc = max_num_proc
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range
        self.__dict__.update(kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # Workers need no discovery, and not every one can be pickled.
        return {**self.__dict__, "discovery": None}
