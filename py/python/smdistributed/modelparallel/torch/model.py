"""`smp.DistributedModel`: a module whose parts are on several ranks, called and trained as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from shoal.torch.backend import of
from smdistributed.modelparallel.torch import comm, deferred, fully_sharded, partitioning, ranks, recompute, registry
from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError, SMPValidationError
from smdistributed.modelparallel.torch.model_facts import Facts
from smdistributed.modelparallel.torch.model_state import States
from smdistributed.modelparallel.torch.pipeline.frames import Learned, Segment
from smdistributed.modelparallel.torch.pipeline.wire import Wire
from smdistributed.modelparallel.torch.ranks import CommGroup
from smdistributed.modelparallel.torch.reduce import Entry, Reducer
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["DistributedModel"]


class DistributedModel(Facts, States, nn.Module):
    """The module in parts. With one pipeline stage it is partitioned at once, otherwise in the
    first call of a step function; then this rank keeps the parameters of its part only.

    `trace_execution_times`, `trace_memory_usage`: the automatic partition goes by measured times
    and sizes, of a forward pass of the first microbatch on rank 0 of each pipeline.
    `overlapping_allreduce`: gradients are sent while the backward pass of the last microbatch goes
    on. `backward_passes_per_step`: calls of step functions whose gradients are added before they
    are sent. `average_grads_across_microbatches`: gradients are means over microbatches, otherwise
    sums. `trace_device`, `broadcast_buffers` (buffers are broadcast once),
    `gradient_as_bucket_view` and `find_unused_parameters` are taken and change nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: float = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
        find_unused_parameters: bool = False,
    ) -> None:
        state.cfg  # noqa: B018 (raises before init)
        if not isinstance(module, nn.Module):
            raise SMPValidationError(f"DistributedModel: {type(module).__name__} is no torch.nn.Module")
        if isinstance(module, (DistributedModel, nn.parallel.DistributedDataParallel)):
            raise SMPValidationError(
                f"DistributedModel: the module is wrapped in {type(module).__name__} already; give the module itself"
            )
        if trace_device not in ("gpu", "cpu"):
            raise SMPValidationError(f"DistributedModel: trace_device {trace_device!r} is neither 'gpu' nor 'cpu'")
        if trace_device == "cpu" and trace_execution_times:
            raise SMPValidationError(
                "DistributedModel: trace_execution_times must be False with trace_device 'cpu'; times there say nothing of the GPU's"
            )
        if backward_passes_per_step < 1:
            raise SMPValidationError(
                f"DistributedModel: backward_passes_per_step {backward_passes_per_step} is less than 1"
            )
        if backward_passes_per_step > 1 and not overlapping_allreduce:
            raise SMPValidationError("DistributedModel: backward_passes_per_step > 1 needs overlapping_allreduce=True")
        super().__init__()
        self.backward_passes_per_step = backward_passes_per_step
        self.average_grads_across_microbatches = average_grads_across_microbatches
        self.overlapping_allreduce = overlapping_allreduce
        self._bucket_bytes = int(bucket_cap_mb * 2**20)
        self._trace = (trace_execution_times, trace_memory_usage)
        self._comm_hook: tuple[Any, Callable] | None = None
        self._partition_hooks: list[Callable] = []
        self._step_hooks: list[Callable] = []
        self._reducer: Reducer | None = None
        self._passes = 0
        self._given_stages: dict[str, int] | None = None
        self._pending: tuple[dict, bool, bool] | None = None
        self.learned: dict[tuple, Learned] = {}
        self.workers: list = []
        self.broken: str | None = None
        self.partitioned = False
        self.backwards = 0
        self.stages: dict[str, int] = {}
        #: Shapes and types of parameters and buffers of other stages, by name.
        self.elsewhere: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
        self.stage_of_root = 0
        self.device = (
            torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        )
        self.module = registry.distribute(module)
        #: Names of parameters and buffers, in the user's order.
        self.order = list(self.module.state_dict())
        #: Names of parameters, also of those that go to other stages.
        self.names = {id(it): name for name, it in self.module.named_parameters()}
        state.model, state.optimizer = self, None
        if ranks.pp_size() == 1:
            self._partition(dict.fromkeys((name for name, _ in self.module.named_modules()), 0))

    # Partition

    def use_partition(self, stages: dict[str, int]) -> None:
        """The partition of a checkpoint, in place of a new one."""
        self._given_stages = stages

    def prepare(self, args: Callable[[], Any] | None = None) -> None:
        """Partitions the model if it is not yet; all ranks of a pipeline. `args`: runs a
        microbatch's body on the whole model, to measure it.
        """
        if self.partitioned:
            return
        cfg = state.cfg
        whole = [it for it in self.module.parameters() if it.is_meta]
        stages = None
        if ranks.pp_rank() == 0:
            stages = self._given_stages
            if stages is None and cfg.load_partition:
                stages = partitioning.stored(cfg.partition_file)
            if stages is None and cfg.auto_partition:
                times, memory = self._trace
                costs = {}
                if (times or memory) and not cfg.skip_tracing and not whole and args is not None:
                    costs = partitioning.measure(self.module, args, times, memory)
                stages = partitioning.automatic(self.module, cfg.pipeline_parallel_degree, cfg.memory_weight, costs)
            elif stages is None:
                stages = partitioning.manual(self.module, cfg.default_partition or 0)
            if cfg.partition_file and not cfg.load_partition and ranks.rank() == 0:
                partitioning.store(cfg.partition_file, stages)
        self._partition(comm.allgather(stages, CommGroup.PP_GROUP)[0])

    def _partition(self, stages: dict[str, int]) -> None:
        """Keeps this stage's part, the same on all data parallel ranks."""
        self.stages, self.stage_of_root = stages, stages[""]
        stage = ranks.pp_rank()
        self._settle_empty()
        recompute.check(self.module, self.stages, automatic=state.cfg.auto_partition)
        local: dict[int, tuple[nn.Module, str]] = {}
        replaced: dict[int, Any] = {}
        for name, it in self.module.named_modules():
            mine = self.stages[name] == stage
            for table in (it._parameters, it._buffers):
                for part, tensor in table.items():
                    if tensor is None:
                        continue
                    full = f"{name}.{part}" if name else part
                    if mine:
                        local[id(tensor)] = (it, part)
                        continue
                    self.elsewhere[full] = (self.stages[name], tuple(tensor.shape), tensor.dtype)
                    table[part] = None
                    replaced[id(tensor)] = tensor
        for key, tensor in replaced.items():
            if key not in local and isinstance(tensor, nn.Parameter) and not tensor.is_meta:
                tensor.data = torch.empty(0, dtype=tensor.dtype)
        self._materialize()
        self.module.to(self.device)
        if state.cfg.fp16 or state.cfg.bf16:
            self._halve()
        self._route(stage)
        self._synchronize()
        sharded = state.cfg.sharded_data_parallel_degree > 1
        if sharded:
            fully_sharded.shard(self.module)
        self.partitioned = True
        entries = [] if sharded else [self._entry(it) for it in self.module.parameters()]
        self._reducer = Reducer(entries, self._bucket_bytes, self.overlapping_allreduce)
        if self._comm_hook is not None:
            self._reducer.hook_state, self._reducer.hook = self._comm_hook
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self.load_state_dict(*pending)
        if state.optimizer is not None:
            state.optimizer.partition()
        for hook in list(self._partition_hooks):
            hook(self, state.optimizer)

    def _settle_empty(self) -> None:
        """Modules without parameters run where they are called, those in a Sequential with the
        child before them.
        """
        modules = dict(self.module.named_modules())
        for name, it in modules.items():
            if not name or next(it.parameters(), None) is not None:
                continue
            around = name.rpartition(".")[0]
            before = self.stages[around]
            if type(modules[around]).forward is nn.Sequential.forward:
                for part in modules[around]._modules:
                    full = f"{around}.{part}" if around else part
                    if full == name:
                        break
                    before = self.stages.get(full, before)
            self.stages[name] = before

    def _materialize(self) -> None:
        tensors = {id(it): it for it in (*self.module.parameters(), *self.module.buffers()) if it.is_meta}
        unknown = [name for name, it in self.module.named_parameters() if it.is_meta and not deferred.is_deferred(it)]
        if unknown:
            raise SMPRuntimeError(
                f"parameter {unknown[0]!r} has no storage, and was not made under smp.delay_param_initialization: make the model in that block"
            )
        made = dict(zip(tensors, deferred.materialize(tensors.values()), strict=True)) if tensors else {}
        for it in self.module.modules():
            for part, tensor in it._buffers.items():
                if tensor is not None and id(tensor) in made:
                    it._buffers[part] = made[id(tensor)]
        for key, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                # The parameter object stays, as optimizers have it; its memory is new.
                torch.utils.swap_tensors(tensor, _parameter_like(tensor, made[key]))
        deferred.forget()

    def _halve(self) -> None:
        dtype = torch.float16 if state.cfg.fp16 else torch.bfloat16
        if state.cfg.sharded_data_parallel_degree > 1:
            return
        for it in self.module.parameters():
            if it.is_floating_point():
                it.data = it.data.to(dtype)
        for it in self.module.buffers():
            if it.is_floating_point():
                it.data = it.data.to(dtype)

    def _route(self, stage: int) -> None:
        """Routes calls of modules of other stages to those stages."""
        modules = dict(self.module.named_modules())
        for name, it in modules.items():
            if self.stages[name] != stage and name:
                it._compiled_call_impl = partial(_remote, [Segment(self.stages[name], name)])
            elif type(it).forward is nn.Sequential.forward and self._is_chain(name, it):
                it.forward = partial(self._chain, name, it)

    def _is_chain(self, name: str, it: nn.Module) -> bool:
        return len({self.stages[self._child(name, part)] for part in it._modules} | {self.stages[name]}) > 1

    @staticmethod
    def _child(name: str, part: str) -> str:
        return f"{name}.{part}" if name else part

    def _chain(self, name: str, it: nn.Sequential, value: Any) -> Any:
        """A Sequential whose children are on several stages: from stage to stage, without a way
        back between them.
        """
        mine = self.stages[name]
        runs: list[Segment] = []
        for at, part in enumerate(it._modules):
            stage = self.stages[self._child(name, part)]
            if runs and runs[-1].stage == stage:
                runs[-1] = Segment(stage, name, runs[-1].begin, at + 1)
            else:
                runs.append(Segment(stage, name, at, at + 1))
        away: list[Segment] = []
        for run in runs:
            if run.stage != mine:
                away.append(run)
                continue
            if away:
                value = _remote(away, value)
                away = []
            value = self.run_segment(run, (value,), {})
        return _remote(away, value) if away else value

    def run_segment(self, segment: Segment, args: tuple, kwargs: dict) -> Any:
        """Runs modules of this stage."""
        module = self.module.get_submodule(segment.path)
        if segment.begin < 0:
            return module(*args, **kwargs)
        (value,) = args
        for child in recompute.groups(module, segment.begin, segment.end):
            value = child(value)
        return value

    def _entry(self, it: nn.Parameter) -> Entry:
        """Distributed parameters are averaged over the ranks that have the same part. Where each
        rank of a tensor parallel group has samples of its own, parts have seen those of all:
        their gradients are sums over the group's losses, of which the average is taken, too.
        """
        if registry.is_scaled(it) and ranks.tp_size() > 1 and it.requires_grad:
            share = 1.0 / ranks.tp_size()
            it.register_hook(lambda grad: grad * share)
        return Entry(it, state.groups.of["rdp" if registry.axis_of(it) is not None else "dp"])

    def _synchronize(self) -> None:
        with torch.no_grad():
            for it in (*self.module.parameters(), *self.module.buffers()):
                group = state.groups.of["rdp" if registry.axis_of(it) is not None else "dp"]
                if dist.get_world_size(group) > 1:
                    dist.broadcast(it.data, group_src=0, group=group)

    # Calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs, on every rank of the pipeline. With several stages only under
        `smp.step`.
        """
        engine = state.engine
        if state.tracing or ranks.pp_size() == 1:
            return self.module(*args, **kwargs)
        if engine is None:
            raise SMPRuntimeError(
                "the model is in several stages: call it in a function under @smp.step, also for evaluation"
            )
        if engine.stage == self.stage_of_root:
            return engine.outputs(self.module(*args, **kwargs))
        return engine.outputs()

    def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
        """In place of `loss.backward()`."""
        listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
        given = (
            [None] * len(listed)
            if grad_tensors is None
            else list(grad_tensors)
            if isinstance(grad_tensors, (list, tuple))
            else [grad_tensors]
        )
        if state.tracing:
            return
        self.backwards += 1
        factor = 1.0
        if self.average_grads_across_microbatches and self._comm_hook is None and state.microbatch_count > 1:
            factor = 1.0 / state.microbatch_count
        if state.cfg.fp16 and state.optimizer is not None:
            factor *= state.optimizer.loss_scale
        grads = [
            grad if factor == 1.0 else (torch.ones_like(it) if grad is None else grad) * factor
            for it, grad in zip(listed, given, strict=True)
        ]
        if state.engine is not None:
            state.engine.backward(listed, grads)
        elif ranks.pp_size() == 1:
            torch.autograd.backward(listed, grads)
        else:
            raise SMPRuntimeError("model.backward: call it in a function under @smp.step")

    def wire(self) -> Wire:
        """Messages between the stages."""
        if self.broken is not None:
            raise SMPRuntimeError(f"the pipeline failed before ({self.broken}); start the job again")
        if not hasattr(self, "_wire"):
            object.__setattr__(self, "_wire", Wire(of(state.groups.pipeline), self.device))
        return self._wire

    def begin_backward(self, micro: int) -> None:
        """The engine begins a backward pass through modules of this rank."""

    def begin_step(self) -> None:
        """A call of a step function begins."""
        self.backwards = 0
        self._reducer.begin(self._passes + 1 == self.backward_passes_per_step)

    def end_step(self) -> None:
        """Averages the gradients if it is time; all microbatches are done."""
        if self.backwards:
            self._passes += 1
            if self._passes == self.backward_passes_per_step:
                self._passes = 0
                self._reducer.finish()
                if state.cfg.sharded_data_parallel_degree > 1:
                    fully_sharded.clip(self.module)
        for hook in list(self._step_hooks):
            hook(self, state.optimizer)


def _parameter_like(old: nn.Parameter, data: torch.Tensor) -> nn.Parameter:
    new = nn.Parameter(data, old.requires_grad)
    new.__dict__.update(old.__dict__)
    return new


def _remote(segments: list[Segment], *args: Any, **kwargs: Any) -> Any:
    if state.engine is None:
        raise SMPRuntimeError(
            f"module {segments[0].path!r} is on partition {segments[0].stage}: call the model in a function under @smp.step"
        )
    return state.engine.call(segments, args, kwargs)
