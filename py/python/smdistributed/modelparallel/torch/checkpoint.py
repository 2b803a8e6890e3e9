"""Checkpoints: of each rank's part, and of the whole model."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from smdistributed.modelparallel.torch import comm, ranks
from smdistributed.modelparallel.torch.exceptions import DistributedModelNotWrappedError, SMPRuntimeError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["load", "resume_from_checkpoint", "save", "save_checkpoint"]

NEWEST = "newest"


def _suffix(v3: bool) -> str:
    """The suffix of file names that says which part of the model this rank has."""
    if v3:
        return f"{ranks.pp_rank()}_{ranks.tp_rank()}_{ranks.rdp_rank()}"
    return f"{ranks.pp_rank()}_{ranks.tp_rank()}" if ranks.tp_size() > 1 else str(ranks.mp_rank())


def save(
    obj: Any, f: Any, partial: bool = True, pickle_module: Any = pickle, pickle_protocol: int = 2, v3: bool = False
) -> None:
    """`torch.save`, with a suffix of this rank's place if the object is its part (`partial`):
    f_{pp}, f_{pp}_{tp} with tensor parallelism, f_{pp}_{tp}_{rdp} with `v3`.
    """
    if partial:
        f = f"{os.fspath(f)}_{_suffix(v3)}"
    torch.save(obj, f, pickle_module=pickle_module, pickle_protocol=pickle_protocol)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = pickle,
    partial: bool = True,
    v3: bool = False,
    **pickle_load_args: Any,
) -> Any:
    """Loads what `save` wrote. Files are pickles: load only those that you trust."""
    if partial:
        plain, longer = (f"{os.fspath(f)}_{_suffix(it)}" for it in (False, True))
        f = longer if v3 or (not os.path.exists(plain) and os.path.exists(longer)) else plain
    pickle_load_args.setdefault("weights_only", False)
    return torch.load(f, map_location=map_location, pickle_module=pickle_module, **pickle_load_args)


def _needed(model: Any) -> Any:
    found = state.model if model is None else model
    if found is None:
        raise DistributedModelNotWrappedError("there is no smp.DistributedModel yet: make it before checkpoints")
    return found


def _per_rank() -> bool:
    """Whether ranks with the same part of the model have different states."""
    return state.cfg.shard_optimizer_state or state.cfg.sharded_data_parallel_degree > 1


def _layout() -> dict[str, Any]:
    names = (
        "pipeline_parallel_degree",
        "tensor_parallel_degree",
        "shard_optimizer_state",
        "sharded_data_parallel_degree",
    )
    return {**{name: getattr(state.cfg, name) for name in names}, "rdp_size": ranks.rdp_size()}


def save_checkpoint(
    path: str,
    tag: str,
    partial: bool = True,
    model: Any = None,
    optimizer: Any = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Writes a checkpoint; all ranks call this. Partial: {path}/{tag}_partial/ with each rank's
    part, to be resumed on the same degrees. Full: {path}/{tag} with the whole model's state and,
    beside it, optimizer_{tag} with the optimizer's, for any degrees. `newest` names the last
    one.
    """
    model = _needed(model)
    optimizer = state.optimizer if optimizer is None and partial else optimizer
    if not model.partitioned:
        raise SMPRuntimeError(
            "save_checkpoint: the model is not partitioned yet; call a function under @smp.step first"
        )
    root = Path(path)
    # Instances may have a disk each.
    root.mkdir(parents=True, exist_ok=True)
    if partial:
        _save_partial(root / f"{tag}_partial", model, optimizer, user_content)
    else:
        _save_full(root, tag, model, optimizer, user_content, translate_if_full)
    comm.barrier()
    if ranks.local_rank() == 0:
        new = root / f".{NEWEST}.{ranks.rank()}"
        new.write_text(f"{tag}_partial" if partial else tag)
        os.replace(new, root / NEWEST)
        if partial and num_kept_partial_checkpoints is not None:
            _forget(root, num_kept_partial_checkpoints)
    comm.barrier()


def _save_partial(folder: Path, model: Any, optimizer: Any, user_content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    own = _per_rank()
    if ranks.rdp_rank() == 0 or state.cfg.sharded_data_parallel_degree > 1:
        torch.save(model.local_state_dict(), folder / f"model_{_suffix(state.cfg.sharded_data_parallel_degree > 1)}.pt")
    if optimizer is not None:
        found = optimizer.local_state_dict(gather_if_shard=False)
        if own or ranks.rdp_rank() == 0:
            torch.save(found, folder / f"optimizer_{_suffix(own)}.pt")
            torch.save(found["loss_scaler"], folder / f"fp16_states_{_suffix(own)}.pt")
    if ranks.local_rank() == 0:
        torch.save(user_content, folder / "user_content.pt")
        torch.save({"layout": _layout(), "partition": model.stages}, folder / "smp_config.pt")


def _save_full(root: Path, tag: str, model: Any, optimizer: Any, user_content: Any, translate: bool) -> None:
    # All ranks of the first replica take part in the gather.
    if ranks.rdp_rank() == 0 or state.cfg.sharded_data_parallel_degree > 1:
        found = model.state_dict()
        if ranks.rank() == 0:
            function = getattr(model.module, "smp_translate_to_full", None)
            torch.save(function(found) if translate and function is not None else found, root / tag)
            torch.save(user_content, root / f"user_content_{tag}")
    if optimizer is not None:
        found = optimizer.state_dict()
        if ranks.rank() == 0:
            torch.save(found, root / f"optimizer_{tag}")


def _forget(root: Path, keep: int) -> None:
    folders = sorted(
        (it for it in root.iterdir() if it.is_dir() and it.name.endswith("_partial")),
        key=lambda it: (it.stat().st_mtime_ns, it.name),
    )
    for it in folders[: max(len(folders) - max(keep, 1), 0)]:
        # Instances may share a disk, and another one may be writing it.
        shutil.rmtree(it, ignore_errors=True)


def resume_from_checkpoint(
    path: str,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Any:
    """Reads a checkpoint, the newest one without a `tag`, and returns its user content; all
    ranks call this. The model and the optimizer have the data after the model is partitioned. A
    partial one needs the degrees that it was saved with; a full one loads on any.
    """
    root = Path(path)
    name = tag if tag is not None else _newest(root, partial)
    if partial:
        return _resume_partial(
            root / (name if name.endswith("_partial") else f"{name}_partial"),
            strict,
            load_optimizer,
            load_sharded_optimizer_state,
        )
    name = re.sub("_partial$", "", name) if not (root / name).is_file() else name
    found = torch.load(root / name, map_location="cpu", weights_only=False)
    model = _needed(None)
    model.load_state_dict(translate_function(found) if translate_function is not None else found, strict)
    stored = root / f"optimizer_{name}"
    if load_optimizer and stored.is_file():
        _later(torch.load(stored, map_location="cpu", weights_only=False))
    content = root / f"user_content_{name}"
    return torch.load(content, map_location="cpu", weights_only=False) if content.is_file() else None


def _newest(root: Path, partial: bool) -> str:
    if not (root / NEWEST).is_file():
        raise FileNotFoundError(f"resume_from_checkpoint: no checkpoint in {root}: it has no file 'newest'; give a tag")
    name = (root / NEWEST).read_text().strip()
    if partial != name.endswith("_partial"):
        kind = "partial" if name.endswith("_partial") else "full"
        raise FileNotFoundError(
            f"resume_from_checkpoint: the newest checkpoint in {root} is {name!r}, a {kind} one; give partial={not partial}, or a tag"
        )
    return name


def _resume_partial(folder: Path, strict: bool, load_optimizer: bool, load_shards: bool) -> Any:
    if not folder.is_dir():
        raise FileNotFoundError(f"resume_from_checkpoint: there is no {folder}")
    facts = torch.load(folder / "smp_config.pt", map_location="cpu", weights_only=False)
    now, was = _layout(), facts["layout"]
    shards = was["shard_optimizer_state"] or was["sharded_data_parallel_degree"] > 1
    wrong = [name for name in now if now[name] != was[name] and (name != "rdp_size" or shards)]
    if wrong:
        name = wrong[0]
        raise SMPRuntimeError(
            f"resume_from_checkpoint: {folder} was saved with {name} {was[name]}, and this is {now[name]}: use the same, or save a full checkpoint (partial=False), which loads anywhere"
        )
    model = _needed(None)
    if ranks.pp_size() > 1 and model.partitioned and model.stages != facts["partition"]:
        raise SMPRuntimeError(f"resume_from_checkpoint: {folder} has another partition; resume before the first step")
    model.use_partition(facts["partition"])
    sharded = state.cfg.sharded_data_parallel_degree > 1
    model.load_state_dict(
        torch.load(folder / f"model_{_suffix(sharded)}.pt", map_location="cpu", weights_only=False), strict
    )
    file = folder / f"optimizer_{_suffix(shards)}.pt"
    if load_optimizer and (load_shards or not shards) and file.is_file():
        _later(torch.load(file, map_location="cpu", weights_only=False))
    content = folder / "user_content.pt"
    return torch.load(content, map_location="cpu", weights_only=False) if content.is_file() else None


def _later(found: dict[str, Any]) -> None:
    """Loads a state into the optimizer, or keeps it for the optimizer that will be made."""
    if state.optimizer is not None:
        state.optimizer.load_state_dict(found)
    else:
        state.loaded_optimizer_state = found
