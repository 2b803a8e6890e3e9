"""The configuration of `torch.sagemaker`: keys of `mp_parameters`, their defaults and which
values fit the ranks. No tensors here.
"""

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from shoal.parallel import Mesh
from torch.sagemaker.logger import get_logger

__all__ = ["Config", "read"]

#: Keys of version 1 that change what a script computes, and what stands for them.
_VERSION_1 = {
    "partitions": "pipeline parallelism: use torch.distributed.pipelining, or smdistributed.modelparallel.torch",
    "pipeline_parallel_degree": "pipeline parallelism: use torch.distributed.pipelining, or smdistributed.modelparallel.torch",
    "microbatches": "micro-batches: use torch.distributed.pipelining, or accumulate gradients in the script",
    "sharded_data_parallel_degree": "this name: write hybrid_shard_degree",
    "shard_optimizer_state": "this switch: hybrid_shard_degree shards parameters, gradients and the optimizer's state",
}


@dataclass(frozen=True)
class Config:
    """What a job asks for. Degrees are numbers of ranks."""

    hybrid_shard_degree: int = 0
    sm_activation_offloading: bool = True
    activation_loading_horizon: int = 2
    fsdp_cache_flush_warnings: bool = True
    allow_empty_shards: bool = False
    tensor_parallel_degree: int = 1
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1
    random_seed: int = 12345

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Config":
        """Checks names and types. Raises `ValueError` that names the key."""
        known = {it.name: it.type for it in fields(cls)}
        given = {}
        for name, value in values.items():
            if name in known:
                given[name] = _typed(name, value, known[name])
            elif name in _VERSION_1:
                if value not in (1, "1", False, "False", "false"):
                    raise ValueError(
                        f"{name}={value!r}: torch.sagemaker (version 2 of the library) has no {_VERSION_1[name]}"
                    )
            else:
                near = difflib.get_close_matches(name, known, 1, 0.8)
                if near:
                    raise ValueError(f"{name}: torch.sagemaker has no such key; did you mean {near[0]}?")
                get_logger().warning(
                    "torch.sagemaker.init: %s is none of its keys and has no effect; they are %s",
                    name,
                    ", ".join(known),
                )
        config = cls(**given)
        if config.activation_loading_horizon < 1:
            raise ValueError(
                f"activation_loading_horizon={config.activation_loading_horizon}: it is a number of layers, at least 1"
            )
        return config

    def mesh(self, world: int) -> Mesh:
        """The ranks of these degrees: tensor ranks are neighbours, context ranks are next, all
        within a shard group; replicas are farthest apart.

        Raises `ValueError` with the nearest degrees that fit.
        """
        for name in ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree"):
            degree = getattr(self, name)
            if not 1 <= degree <= world:
                raise ValueError(f"{name}={degree}: it must be between 1 and the {world} ranks of this job")
        tensor, context = self.tensor_parallel_degree, self.context_parallel_degree
        _divides("tensor_parallel_degree", tensor, world, f"{world} ranks")
        rest = world // tensor
        if not 0 <= self.hybrid_shard_degree <= rest:
            of = f"{world} ranks" if tensor == 1 else f"{world} ranks / tensor_parallel_degree {tensor} = {rest}"
            raise ValueError(
                f"hybrid_shard_degree={self.hybrid_shard_degree}: it must be between 0 and {of}; 0 shards over all of them"
            )
        shard = self.shards(world)
        _divides(
            "hybrid_shard_degree",
            shard,
            rest,
            f"{rest} ranks" if tensor == 1 else f"{rest} ranks of each place in the tensor groups",
        )
        if context > shard:
            raise ValueError(
                f"context_parallel_degree={context}: it must not be greater than hybrid_shard_degree, {shard}; nearest valid: {shard}"
            )
        _divides("context_parallel_degree", context, shard, f"hybrid_shard_degree {shard}")
        _divides("expert_parallel_degree", self.expert_parallel_degree, world, f"{world} ranks")
        return Mesh(world, shard=shard // context, context=context, tensor=tensor)

    def shards(self, world: int) -> int:
        """Among how many ranks FSDP shards parameters; with `hybrid_shard_degree=0`, all that
        there are.
        """
        return self.hybrid_shard_degree or world // self.tensor_parallel_degree

    def is_native(self) -> bool:
        """Whether FSDP does what the script says, as without this library."""
        return self.hybrid_shard_degree == 0 and self.tensor_parallel_degree == 1

    def as_dict(self) -> dict[str, Any]:
        """By the names of the keys."""
        return asdict(self)


def read(config: str | os.PathLike | Mapping[str, Any] | None, variables: Mapping[str, str] = os.environ) -> Config:
    """The configuration: the job's `mp_parameters` (SM_HP_MP_PARAMETERS), and what they leave
    open from `config`, a dictionary or the path of a JSON file.

    Raises `ValueError` for what cannot be read or does not fit.
    """
    given: Any = {} if config is None else config
    if isinstance(given, (str, os.PathLike)):
        try:
            with open(given) as file:
                given = json.load(file)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"torch.sagemaker.init: the configuration file {os.fspath(config)} cannot be read as JSON: {error}"
            ) from error
    if not isinstance(given, Mapping):
        raise ValueError(
            f"torch.sagemaker.init: the configuration is {type(given).__name__}; give a dictionary or the path of a JSON file with one"
        )
    told = variables.get("SM_HP_MP_PARAMETERS") or "{}"
    try:
        launched = json.loads(told)
    except ValueError as error:
        raise ValueError(f"SM_HP_MP_PARAMETERS is not JSON: {error}") from error
    if not isinstance(launched, Mapping):
        raise ValueError(f"SM_HP_MP_PARAMETERS is {told}; mp_parameters is a JSON object")
    return Config.of({**given, **launched})


def _typed(name: str, value: Any, kind: Any) -> int | bool:
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: it is true or false")
        return value
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}={value!r}: it is a whole number")
    return value


def _divides(name: str, degree: int, whole: int, what: str) -> None:
    if whole % degree:
        valid = [it for it in range(1, whole + 1) if whole % it == 0]
        nearest = sorted(sorted(valid, key=lambda it: abs(it - degree))[:2])
        raise ValueError(
            f"{name}={degree} does not divide {what}; nearest valid: {' or '.join(str(it) for it in nearest)}"
        )
