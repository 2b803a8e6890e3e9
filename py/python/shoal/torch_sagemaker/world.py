"""`torch.sagemaker.state`: the job's degrees, this process's ranks, and the process groups."""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shoal.parallel import Mesh
from torch.sagemaker.config import Config
from torch.sagemaker.rng import RngTracker

__all__ = ["Ranker", "State", "state"]


class Ranker:
    """Which rank stands where. Pure."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def get_rep_rank(self, rank: int) -> int:
        """Which replica of the sharded model a rank has a part of."""
        return self._mesh.coordinates(rank)["data"]

    def get_rep_groups(self) -> list[list[int]]:
        """Ranks that have the same part, one of each replica."""
        return self._mesh.groups("data")

    def get_shard_rank(self, rank: int) -> int:
        """A rank's place in its shard group."""
        return self._mesh.position(rank, "shard", "context")

    def get_shard_groups(self) -> list[list[int]]:
        """Ranks among which FSDP shards parameters."""
        return self._mesh.groups("shard", "context")

    def get_cp_rank(self, rank: int) -> int:
        """A rank's place in its context parallel group."""
        return self._mesh.coordinates(rank)["context"]

    def get_cp_groups(self) -> list[list[int]]:
        """Ranks that have parts of the same sequences."""
        return self._mesh.groups("context")

    def get_tp_rank(self, rank: int) -> int:
        """A rank's place in its tensor parallel group."""
        return self._mesh.coordinates(rank)["tensor"]

    def get_tp_groups(self) -> list[list[int]]:
        """Ranks that share the layers' matrices."""
        return self._mesh.groups("tensor")

    def get_dp_groups(self) -> list[list[int]]:
        """Ranks with the same place in the tensor parallel groups: FSDP's."""
        return self._mesh.groups("data", "shard", "context")


class State:
    """What `torch.sagemaker.init` has made. Before it, every attribute raises `RuntimeError`."""

    def __init__(self) -> None:
        self._config: Config | None = None

    def initialize(self, config: Config) -> None:
        """Checks the degrees against the ranks and makes the groups; all ranks call it. Raises
        `ValueError` for degrees that do not fit.
        """
        world = dist.get_world_size()
        ranks = config.mesh(world)
        self.ranker = Ranker(ranks)
        self.rank, self.world_size = dist.get_rank(), world
        self.world_process_group = dist.group.WORLD
        where = ranks.coordinates(self.rank)
        self.tp_rank, self.cp_rank = where["tensor"], where["context"]
        self.ep_rank = self.rank % config.expert_parallel_degree
        self.rep_rank, self.shard_rank = where["data"], self.ranker.get_shard_rank(self.rank)
        self.mesh = self.tp_process_group = self.rep_rank_process_group = self.cp_process_group = None
        if not config.is_native():
            degrees = (ranks.size("data"), ranks.size("shard", "context"), ranks.size("tensor"))
            # Also of "cpu:gloo,cuda:nccl", which asynchronous checkpoints want, and of smddp's
            # "cpu:smddp,cuda:nccl".
            device = "cuda" if "cuda:nccl" in dist.get_backend_config() else "cpu"
            self.mesh = init_device_mesh(device, degrees, mesh_dim_names=("rep", "shard", "tp"))
            self.tp_process_group = self.mesh.get_group("tp")
            self.rep_rank_process_group = _of(self.rank, ranks.groups("shard", "context", "tensor"))
        if config.context_parallel_degree > 1:
            self.cp_process_group = _of(self.rank, self.ranker.get_cp_groups())
        self._rng = RngTracker(config.random_seed + self.tp_rank)
        self._config = config

    @property
    def is_initialized(self) -> bool:
        """Whether `init` was called."""
        return self._config is not None

    @property
    def cfg(self) -> Config:
        """The configuration."""
        if self._config is None:
            raise RuntimeError("torch.sagemaker is not initialized: call torch.sagemaker.init() first")
        return self._config

    @property
    def tp_size(self) -> int:
        """Another name of `tensor_parallel_degree`."""
        return self.cfg.tensor_parallel_degree

    @property
    def cp_size(self) -> int:
        """Another name of `context_parallel_degree`."""
        return self.cfg.context_parallel_degree

    @property
    def ep_size(self) -> int:
        """Another name of `expert_parallel_degree`."""
        return self.cfg.expert_parallel_degree

    def get_rng_state_tracker(self) -> RngTracker:
        """Random numbers that differ between tensor parallel ranks."""
        if self._config is None:
            raise RuntimeError("torch.sagemaker is not initialized: call torch.sagemaker.init() first")
        return self._rng

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # The keys of the configuration are attributes, too.
        config = self.__dict__.get("_config")
        if config is None:
            raise RuntimeError(
                f"torch.sagemaker.state.{name}: torch.sagemaker is not initialized; call torch.sagemaker.init() first"
            )
        try:
            return getattr(config, name)
        except AttributeError:
            raise AttributeError(f"torch.sagemaker.state has no {name}") from None


def _of(rank: int, groups: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """The process group of these that has the rank; all ranks call it."""
    mine = None
    for ranks in groups:
        group = dist.new_group(list(ranks))
        if rank in ranks:
            mine = group
    return mine


#: The one of this process.
state = State()
