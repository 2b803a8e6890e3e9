"""Partitioning of modules into the stages of the pipeline: decided on rank 0 of a pipeline,
which broadcasts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shoal.parallel import Module, chain, tree
from smdistributed.modelparallel.torch.creation import STAGE
from smdistributed.modelparallel.torch.exceptions import PartitionError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["automatic", "manual", "measure"]


def measure(module: nn.Module, run: Any, times: bool, memory: bool) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of outputs of each module in one forward pass, without those of its
    children. Buffers and random numbers stay as they are.
    """
    names = {id(it): name for name, it in module.named_modules()}
    found: dict[str, list[float]] = {name: [0.0, 0.0] for name in names.values()}
    stack: list[list[float]] = []

    def before(it: nn.Module, _: Any) -> None:
        stack.append([time.perf_counter(), 0.0])

    def after(it: nn.Module, _: Any, output: Any) -> None:
        begin, inner = stack.pop()
        spent = time.perf_counter() - begin
        if stack:
            stack[-1][1] += spent
        tensors = [x for x in torch.utils._pytree.tree_leaves(output) if isinstance(x, torch.Tensor)]
        found[names[id(it)]][0] += spent - inner
        found[names[id(it)]][1] += sum(x.numel() * x.itemsize for x in tensors)

    hooks = [
        hook
        for it in module.modules()
        for hook in (it.register_forward_pre_hook(before), it.register_forward_hook(after))
    ]
    buffers = {name: it.clone() for name, it in module.named_buffers()}
    state.tracing = True
    try:
        with torch.random.fork_rng(), torch.no_grad():
            run()
    finally:
        state.tracing = False
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, it in module.named_buffers():
                it.copy_(buffers[name])
    return {name: (seconds if times else 0.0, int(size) if memory else 0) for name, (seconds, size) in found.items()}


def automatic(
    module: nn.Module, stages: int, memory_weight: float, costs: dict[str, tuple[float, int]]
) -> dict[str, int]:
    """The stage of each module by `shoal.parallel.tree`. Without measured times, a module's cost
    is its number of parameters, to which the time of dense layers is proportional.
    """
    parameters = {id(it): at for at, it in enumerate(module.parameters())}
    sizes = [it.numel() * it.itemsize for it in module.parameters()]
    timed = any(seconds for seconds, _ in costs.values())
    order: list[str] = []
    seen: set[int] = set()

    def node(it: nn.Module, name: str) -> Module:
        seen.add(id(it))
        order.append(name)
        own = [parameters[id(x)] for x in it._parameters.values() if x is not None]
        seconds, size = costs.get(name, (0.0, 0))
        amount = seconds if timed else float(sum(x.numel() for x in it._parameters.values() if x is not None))
        children = [
            node(child, f"{name}.{part}" if name else part)
            for part, child in it.named_children()
            if id(child) not in seen
        ]
        return Module(time=amount, activations=size, parameters=own, children=children)

    root = node(module, "")
    found = dict(zip(order, tree(root, sizes, stages, memory_weight=memory_weight), strict=True))
    if _used(module, found) < stages:
        # The tree's proportions left a stage without parameters, as happens with a few modules of
        # unequal size.
        whole_bytes = sum(sizes) + sum(size for _, size in costs.values()) or 1
        whole_time = sum(costs[name][0] if timed else float(_own(it)) for name, it in module.named_modules()) or 1.0

        def cost(name: str, it: nn.Module) -> float:
            inside = [(f"{name}.{part}" if part else name, x) for part, x in it.named_modules()]
            size = sum(x.numel() * x.itemsize for x in it.parameters()) + sum(
                costs.get(other, (0.0, 0))[1] for other, _ in inside
            )
            spent = sum(costs[other][0] if timed else float(_own(x)) for other, x in inside)
            return memory_weight * size / whole_bytes + (1 - memory_weight) * spent / whole_time

        other = _in_a_row(module, stages, cost)
        if _used(module, other) > _used(module, found):
            return other
    return found


def _own(it: nn.Module) -> int:
    return sum(x.numel() for x in it._parameters.values() if x is not None)


def _used(module: nn.Module, stages: dict[str, int]) -> int:
    return len({stages[name] for name, it in module.named_modules() if _own(it)})


def _in_a_row(module: nn.Module, stages: int, cost: Callable[[str, nn.Module], float]) -> dict[str, int]:
    """The outermost modules that are enough for all stages, in order, cut by
    `shoal.parallel.chain`.
    """
    units: list[tuple[str, nn.Module]] = [("", module)]
    while sum(next(it.parameters(), None) is not None for _, it in units) < stages:
        open_units = [
            (cost(name, it), name)
            for name, it in units
            if any(next(x.parameters(), None) is not None for x in it.children())
        ]
        if not open_units:
            break
        dearest = max(open_units)[1]
        at = next(at for at, (name, _) in enumerate(units) if name == dearest)
        name, it = units[at]
        units[at : at + 1] = [(f"{name}.{part}" if name else part, child) for part, child in it.named_children()]
    begins = chain([cost(name, it) for name, it in units], min(stages, len(units)))
    of: dict[str, int] = {}
    keeper: dict[int, int] = {}
    for at, (name, it) in enumerate(units):
        stage = sum(begin <= at for begin in begins) - 1
        # Modules that share a parameter go where the first of them is.
        stage = next((keeper[id(x)] for x in it.parameters() if id(x) in keeper), stage)
        keeper.update({id(x): stage for x in it.parameters()})
        of[name] = stage
    found: dict[str, int] = {}
    for name, _ in module.named_modules():
        around = [unit for unit in of if unit == name or name.startswith(f"{unit}.") or not unit]
        within = [unit for unit in of if not name or unit.startswith(f"{name}.")]
        found[name] = of[max(around, key=len)] if around else of[within[0]]
    return found


def manual(module: nn.Module, default: int) -> dict[str, int]:
    """The stage of each module as set by `smp.partition` and `smp.set_partition`; other modules
    follow the module around them.
    """
    found: dict[str, int] = {}
    for name, it in module.named_modules():
        around = found[name.rpartition(".")[0]] if name else default
        found[name] = it.__dict__.get(STAGE, around)
    # Parameters that modules share must be on one stage.
    first: dict[int, str] = {}
    for name, it in module.named_modules():
        for part, parameter in it._parameters.items():
            if parameter is None:
                continue
            other = first.setdefault(id(parameter), name)
            if found[other] != found[name]:
                raise PartitionError(
                    f"modules {other!r} (partition {found[other]}) and {name!r} (partition {found[name]}) share parameter {part!r}: put both on one partition"
                )
    return found


def stored(path: str | None) -> dict[str, int] | None:
    """The partition of a file, if there is one."""
    if path is None or not Path(path).is_file():
        return None
    return dict(json.loads(Path(path).read_text())["stages"])


def store(path: str, stages: dict[str, int]) -> None:
    """Writes a partition for later runs."""
    Path(path).write_text(json.dumps({"version": 1, "stages": stages}, indent=1))
