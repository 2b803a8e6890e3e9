"""The configuration: what the launcher and the script ask for, checked before anything starts."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any

from shoal.parallel import Invalid, Mesh
from smdistributed.modelparallel.backend.exceptions import SMPConfigError

__all__ = ["Config", "from_environment", "read"]

#: The launcher's settings, as JSON; they win over the script's.
VARIABLE = "SM_HP_MP_PARAMETERS"
PLACEMENTS = ("cluster", "spread", *("".join(it) for it in permutations("DPT")))
CHOICES = {
    "pipeline": ("interleaved", "simple", "_only_forward"),
    "optimize": ("memory", "speed"),
    "placement_strategy": PLACEMENTS,
    "ddp_dist_backend": ("auto", "nccl", "smddp", "shoal", "gloo"),
}
#: Older names.
ALIASES = {"partitions": "pipeline_parallel_degree", "fp16_params": "fp16"}


@dataclass(frozen=True)
class Config:
    """All keys with their defaults. Numbers are at least 1 where `POSITIVE` names them."""

    pipeline_parallel_degree: int = 1
    microbatches: int = 1
    pipeline: str = "interleaved"
    optimize: str = "memory"
    placement_strategy: str = "cluster"
    auto_partition: bool = True
    default_partition: int | None = None
    memory_weight: float | None = None
    contiguous: bool = True
    horovod: bool = False
    ddp: bool = False
    ddp_port: int | None = None
    ddp_dist_backend: str = "auto"
    active_microbatches: int | None = None
    deterministic_server: bool = False
    partition_file: str | None = None
    load_partition: bool = False
    tensor_parallel_degree: int = 1
    shard_optimizer_state: bool = False
    sharded_data_parallel_degree: int = 1
    sdp_reduce_bucket_size: int = 500_000_000
    sdp_param_persistence_threshold: int = 1_000_000
    sdp_max_live_parameters: int = 1_000_000_000
    sdp_hierarchical_allgather: bool = True
    sdp_gradient_clipping: float = 1.0
    fp16: bool = False
    bf16: bool = False
    offload_activations: bool = False
    activation_loading_horizon: int = 4
    prescaled_batch: bool = False
    skip_tracing: bool = False
    # Not documented, but scripts pass them: the first has an effect, the others choose among
    # equivalent implementations.
    _match_weights: bool = False
    delayed_parameter_initialization: bool = False
    static_mode: bool = False
    fast_mode: bool = False
    checkpoint_attentions: bool = False
    _fp32_grad_accumulation: bool = False

    @property
    def partitions(self) -> int:
        """The older name of `pipeline_parallel_degree`."""
        return self.pipeline_parallel_degree

    @property
    def fp16_params(self) -> bool:
        """The older name of `fp16`."""
        return self.fp16

    @property
    def zero2d_enabled(self) -> bool:
        """Whether parameters are sharded among data parallel ranks."""
        return self.sharded_data_parallel_degree > 1

    @property
    def half(self) -> bool:
        """Whether the model is in 16 bit."""
        return self.fp16 or self.bf16

    def mesh(self, world: int) -> Mesh:
        """The ranks' mesh, or which degree does not fit the world."""
        names = {
            "pipeline": "pipeline_parallel_degree",
            "tensor": "tensor_parallel_degree",
            "data": "pipeline_parallel_degree",
        }
        word = self.placement_strategy
        try:
            mesh = Mesh(
                world, pipeline=self.pipeline_parallel_degree, tensor=self.tensor_parallel_degree, placement=word
            )
        except Invalid as error:
            field = names.get(error.field, error.field)
            problem = str(error).split(";")[0].split(": ", 1)[-1]
            if world == 1:
                problem = f"this script runs alone, as 1 rank, and {problem.replace('1 ranks', 'it')}: start it by torchrun --nproc-per-node, or by a job's distribution"
            raise SMPConfigError(field, problem, list(error.nearest)) from None
        degree, data = self.sharded_data_parallel_degree, mesh.size("data")
        if data % degree:
            valid = [it for it in range(1, data + 1) if data % it == 0]
            near = sorted(valid, key=lambda it: abs(it - degree))[:2]
            raise SMPConfigError(
                "sharded_data_parallel_degree",
                f"{degree} does not divide the data parallel degree {data}",
                sorted(near),
            )
        return mesh


POSITIVE = {
    "pipeline_parallel_degree", "microbatches", "active_microbatches", "tensor_parallel_degree", "sharded_data_parallel_degree",
    "sdp_reduce_bucket_size", "sdp_max_live_parameters", "activation_loading_horizon", "ddp_port",
}  # fmt: skip
KINDS: dict[str, str] = {it.name: str(it.type).split(" |")[0] for it in fields(Config)}


def _typed(name: str, value: Any) -> Any:
    """The value in its key's type; the launcher may give strings."""
    kind = KINDS[name]
    if value is None and getattr(Config, name, 0) is None:
        return None
    if kind == "bool":
        texts = {"true": True, "false": False, "1": True, "0": False}
        if isinstance(value, str) and value.lower() in texts:
            return texts[value.lower()]
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise SMPConfigError(name, f"{value!r} is no truth value", [True, False])
    if kind in ("int", "float"):
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or number != number:
            raise SMPConfigError(name, f"{value!r} is no number", getattr(Config, name, None) or 1)
        if kind == "float":
            return number
        if number != int(number):
            raise SMPConfigError(name, f"{value!r} is no whole number", [int(number), int(number) + 1])
        if name in POSITIVE and number < 1:
            raise SMPConfigError(name, f"{int(number)} is less than 1", 1)
        return int(number)
    if not isinstance(value, str):
        raise SMPConfigError(name, f"{value!r} is no text", CHOICES.get(name))
    if name in CHOICES:
        found = next((it for it in CHOICES[name] if it.lower() == value.lower()), None)
        if found is None:
            near = difflib.get_close_matches(value, CHOICES[name], 1, 0.3) or [CHOICES[name][0]]
            raise SMPConfigError(name, f"{value!r} is none of {', '.join(CHOICES[name])}", near)
        return found
    return value


def _merge(script: Mapping[str, Any], launcher: Mapping[str, Any]) -> dict[str, Any]:
    """Keys by their newer names; the launcher's values win."""
    merged: dict[str, Any] = {}
    for source in (script, launcher):
        found: dict[str, Any] = {}
        for key, value in source.items():
            name = ALIASES.get(key, key)
            if name not in KINDS:
                if key.startswith("_"):
                    continue
                near = difflib.get_close_matches(key, [*KINDS, *ALIASES], 2, 0.5)
                raise SMPConfigError(key, "there is no such key", near or None)
            typed = _typed(name, value)
            if name in found and found[name] != typed:
                raise SMPConfigError(key, f"{value!r} contradicts {name} {found[name]!r}", found[name])
            found[name] = typed
        merged.update(found)
    return merged


def read(script: Mapping[str, Any] | None = None, launcher: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a script's dict and of the launcher's, which wins. Raises
    `SMPConfigError`, which names the key and the nearest valid values.
    """
    given = _merge(script or {}, launcher or {})
    config = replace(Config(), **given)
    stages, tensor = config.pipeline_parallel_degree, config.tensor_parallel_degree
    if not config.auto_partition and config.default_partition is None:
        raise SMPConfigError("default_partition", "auto_partition is False, so it must be given", 0)
    if config.default_partition is not None and not 0 <= config.default_partition < stages:
        near = max(0, min(config.default_partition, stages - 1))
        raise SMPConfigError("default_partition", f"{config.default_partition} is no partition of {stages}", near)
    if config.memory_weight is not None and not 0 <= config.memory_weight <= 1:
        raise SMPConfigError(
            "memory_weight", f"{config.memory_weight} is not within 0 and 1", max(0.0, min(config.memory_weight, 1.0))
        )
    if config.horovod and config.ddp:
        raise SMPConfigError("horovod", "horovod and ddp exclude each other", False)
    if config.horovod:
        raise SMPConfigError("horovod", "only TensorFlow's library has it; use ddp", False)
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in given and given[name] not in (None, "auto") and not config.ddp:
            raise SMPConfigError("ddp", f"{name} needs it", True)
    if tensor > 1 and not config.ddp:
        raise SMPConfigError("ddp", "tensor_parallel_degree > 1 needs it", True)
    if config.fp16 and config.bf16:
        raise SMPConfigError("bf16", "fp16 and bf16 exclude each other", False)
    if config.sharded_data_parallel_degree > 1:
        if stages > 1:
            raise SMPConfigError("sharded_data_parallel_degree", f"it excludes pipeline_parallel_degree {stages}", 1)
        if config.shard_optimizer_state:
            raise SMPConfigError("shard_optimizer_state", "sharded_data_parallel_degree shards it already", False)
        if tensor > 1:
            raise SMPConfigError(
                "sharded_data_parallel_degree",
                f"it is not offered with tensor_parallel_degree {tensor}; use shard_optimizer_state",
                1,
            )
    if config.skip_tracing and stages > 1 and config.auto_partition:
        raise SMPConfigError("skip_tracing", "a pipeline needs a manual partition then (auto_partition False)", False)
    if config.sdp_gradient_clipping < 0:
        raise SMPConfigError("sdp_gradient_clipping", f"{config.sdp_gradient_clipping} is less than 0", 0.0)
    return replace(
        config,
        memory_weight=config.memory_weight
        if config.memory_weight is not None
        else {"memory": 0.8, "speed": 0.2}[config.optimize],
        active_microbatches=config.active_microbatches or stages + 2,
        default_partition=config.default_partition or 0,
    )


def from_environment() -> dict[str, Any]:
    """The launcher's settings; none without a launcher."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise SMPConfigError(VARIABLE, f"no JSON: {error}") from None
    if isinstance(found, str):
        # A hyperparameter that was encoded twice.
        found = json.loads(found or "{}")
    if not isinstance(found, dict):
        raise SMPConfigError(VARIABLE, f"{text!r} is no JSON object")
    return found
