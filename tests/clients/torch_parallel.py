"""A user's script: every kind of parallelism that PyTorch has of its own, on backend shoal, each
compared with one process that trains on all samples.

    torchrun --nproc-per-node 2 torch_parallel.py [--backend shoal] [--only NAME ..]

Needs 2 or 4 ranks. Prints a line for each case, with the greatest difference of a parameter or a
loss; the first one that differs ends it.
"""

import argparse
import copy
import itertools
import json
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed import tensor as dt
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, offload_wrapper
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline, schedules
from torch.distributed.tensor import parallel as tp
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, SEQUENCE, BATCH, STEPS = 16, 8, 4, 16, 3
#: The large epsilon keeps the rounding of gradients near zero out of the comparison.
ADAM = {"lr": 0.01, "eps": 1e-4}
CPU = torch.device("cpu")


class Layer(nn.Module):
    """A residual perceptron."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def tower():
    torch.manual_seed(1)
    return nn.Sequential(*[Layer() for _ in range(LAYERS)])


def samples():
    torch.manual_seed(2)
    return torch.randn(STEPS, BATCH, SEQUENCE, WIDTH), torch.randn(STEPS, BATCH, SEQUENCE, WIDTH)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, **ADAM)


def train(net, of=lambda it: it, make=optimizer, clip=None, steps=STEPS):
    """Losses; `of`: this rank's part of a batch."""
    stepper, losses = make(net.parameters()), []
    for x, y in zip(*samples(), strict=True):
        if len(losses) == steps:
            break
        stepper.zero_grad()
        loss = nn.functional.mse_loss(net(of(x)), of(y))
        loss.backward()
        if clip is not None:
            clip(net)
        stepper.step()
        losses.append(loss.detach())
    return losses


def alone(make=optimizer, clip=None):
    """Losses and parameters of one process."""
    net = tower()
    return train(net, make=make, clip=clip), {name: it.detach() for name, it in net.named_parameters()}


def mine(rank, size):
    return lambda it: it.chunk(size)[rank]


class Difference:
    """The greatest one so far."""

    def __init__(self, tolerance):
        self.tolerance, self.most = tolerance, 0.0

    def __call__(self, got, wanted, what):
        got = got.full_tensor() if isinstance(got, dt.DTensor) else got
        far = (got.detach().float() - wanted.float()).abs().max().item()
        assert far < self.tolerance, f"{what}: differs by {far}"
        self.most = max(self.most, far)

    def all(self, got, wanted):
        assert set(got) == set(wanted), sorted(set(got) ^ set(wanted))
        for name, it in wanted.items():
            self(got[name], it, name)


def mean(losses, size, group=None):
    for it in losses:
        dist.all_reduce(it, group=group)
        it /= size
    return losses


def ddp(rank, size, near):
    for options in ({}, {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}):
        net = DistributedDataParallel(tower(), **options)
        losses, wanted = alone()
        for got, it in zip(mean(train(net, mine(rank, size)), size), losses, strict=True):
            near(got, it, "loss")
        near.all(dict(net.module.named_parameters()), wanted)
    net = tower()
    replicate(net)
    train(net, mine(rank, size))
    near.all(dict(net.named_parameters()), wanted)


def uneven_inputs(rank, size, near):
    """Rank 1 has fewer batches: the others go on."""
    net = DistributedDataParallel(nn.Linear(2, 1))
    with Join([net]):
        for _ in range(3 if rank == 1 else 5):
            net(torch.ones(1, 2)).sum().backward()
    every = [torch.empty(1, 2) for _ in range(size)]
    dist.all_gather(every, net.module.weight.data)
    for it in every:
        near(it, every[0], "weight")


def zero(rank, size, near):
    net = DistributedDataParallel(tower())
    train(net, mine(rank, size), lambda it: ZeroRedundancyOptimizer(it, torch.optim.AdamW, **ADAM))
    near.all(dict(net.module.named_parameters()), alone()[1])


def fsdp1(rank, size, near):
    strategies = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP]
    for strategy, orig in itertools.product(strategies, (False, True)):
        net = FullyShardedDataParallel(
            tower(),
            sharding_strategy=strategy,
            auto_wrap_policy=ModuleWrapPolicy({Layer}),
            device_id=CPU,
            use_orig_params=orig,
        )
        wanted = alone(clip=lambda it: nn.utils.clip_grad_norm_(it.parameters(), 0.1))[1]
        train(net, mine(rank, size), clip=lambda it: it.clip_grad_norm_(0.1))
        near.all(_full(net), wanted)
    # Recomputed activations, kept on the CPU.
    net = FullyShardedDataParallel(tower(), auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=CPU)
    apply_activation_checkpointing(net, check_fn=lambda it: isinstance(it, Layer))
    train(offload_wrapper(net), mine(rank, size))
    near.all({name.replace("_checkpoint_wrapped_module.", ""): it for name, it in _full(net).items()}, alone()[1])
    if size == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        net = FullyShardedDataParallel(
            tower(),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            auto_wrap_policy=ModuleWrapPolicy({Layer}),
            device_mesh=mesh,
            device_id=CPU,
        )
        train(net, mine(rank, size))
        near.all(_full(net), alone()[1])


def _full(net):
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT):
        return net.state_dict()


def fsdp2(rank, size, near):
    cases = [{}, {"reshard_after_forward": False}, {"offload_policy": CPUOffloadPolicy(pin_memory=False)}]
    if size == 4:
        cases.append({"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))})
    cases = [{"mesh": init_device_mesh("cpu", (size,)), **it} for it in cases]
    for options in cases:
        net = _sharded(tower(), **options)
        wanted = alone(clip=lambda it: nn.utils.clip_grad_norm_(it.parameters(), 0.1))[1]
        train(net, mine(rank, size), clip=lambda it: nn.utils.clip_grad_norm_(it.parameters(), 0.1))
        near.all(dict(net.named_parameters()), wanted)
    net = _sharded(
        tower(),
        mesh=init_device_mesh("cpu", (size,)),
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    )
    losses = mean([it.float() for it in train(net, mine(rank, size))], size)
    for got, it in zip(losses, alone()[0], strict=True):
        Difference(0.1)(got, it, "loss in bfloat16")


def _sharded(net, **options):
    for it in net:
        fully_shard(it, **options)
    return fully_shard(net, **options)


def tensor_parallel(rank, size, near):
    mesh = init_device_mesh("cpu", (size,))
    for sequence in (False, True):
        net = _tensor(tower(), mesh, sequence)
        losses, wanted = alone()
        for got, it in zip(train(net), losses, strict=True):
            near(got, it, "loss")
        near.all(dict(net.named_parameters()), wanted)


def _tensor(net, mesh, sequence=False):
    """Each layer's perceptron over the ranks of the mesh; with `sequence`, what is between
    perceptrons is cut along the sequence.
    """
    for it in net:
        if sequence:
            plan = {
                "norm": tp.SequenceParallel(),
                "wide": tp.ColwiseParallel(input_layouts=dt.Shard(1)),
                "narrow": tp.RowwiseParallel(output_layouts=dt.Shard(1)),
            }
            tp.parallelize_module(it, mesh, plan)
        else:
            tp.parallelize_module(it, mesh, {"wide": tp.ColwiseParallel(), "narrow": tp.RowwiseParallel()})
    if sequence:
        # The norm's output and the residual have a part of the sequence each.
        tp.parallelize_module(
            net[0],
            mesh,
            tp.PrepareModuleInput(
                input_layouts=dt.Replicate(), desired_input_layouts=dt.Shard(1), use_local_output=True
            ),
        )
        tp.parallelize_module(
            net[-1], mesh, tp.PrepareModuleOutput(output_layouts=dt.Shard(1), desired_output_layouts=dt.Replicate())
        )
    return net


def loss_parallel(rank, size, near):
    """Scores of a vocabulary that is cut among the ranks."""
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Embedding(8, WIDTH), nn.Linear(WIDTH, 8))
    net = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (size,))
    plan = {
        "0": tp.RowwiseParallel(input_layouts=dt.Replicate()),
        "1": tp.ColwiseParallel(output_layouts=dt.Shard(-1), use_local_output=False),
    }
    tp.parallelize_module(net, mesh, plan)
    words, next_ones = torch.randint(8, (2, 6))
    wanted = nn.functional.cross_entropy(plain(words), next_ones)
    wanted.backward()
    with tp.loss_parallel():
        got = nn.functional.cross_entropy(net(words), next_ones)
        got.backward()
    near(got, wanted, "loss")
    near.all(
        {name: it.grad for name, it in net.named_parameters()}, {name: it.grad for name, it in plain.named_parameters()}
    )


def dtensor(rank, size, near):
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(3)
    a, b = torch.randn(10, 6), torch.randn(6, 9)
    layouts = [dt.Replicate(), dt.Shard(0), dt.Shard(1)]
    for first, second, last in itertools.product(layouts, layouts, layouts):
        product = dt.distribute_tensor(a, mesh, [first]) @ dt.distribute_tensor(b, mesh, [second])
        near(product.redistribute(placements=[last]), a @ b, f"{first} @ {second} as {last}")
    part = dt.DTensor.from_local(torch.full((3,), float(rank + 1)), mesh, [dt.Partial()])
    near(part, torch.full((3,), size * (size + 1) / 2), "partial sums")
    near(dt.distribute_tensor(a, mesh, [dt.Shard(0)]).softmax(0), a.softmax(0), "softmax along the cut dimension")
    near(dt.ones(7, 3, device_mesh=mesh, placements=[dt.Shard(0)]).sum(), torch.tensor(21.0), "sum")


def meshes(rank, size, near):
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("a", "b"))
    assert list(mesh.get_coordinate()) == [rank // 2, rank % 2] and mesh["b"].get_local_rank() == rank % 2
    number = torch.tensor(float(rank))
    for name, wanted in (("a", sum(range(rank % 2, size, 2))), ("b", rank // 2 * 4 + 1)):
        it = number.clone()
        dist.all_reduce(it, group=mesh.get_group(name))
        near(it, torch.tensor(float(wanted)), f"sum along {name}")
    both = mesh["a", "b"]._flatten("both")
    assert both.size() == size
    torch.manual_seed(4)
    whole = torch.randn(8, 4)
    near(dt.distribute_tensor(whole, mesh, [dt.Shard(0), dt.Shard(1)]), whole, "two dimensions")
    again = dt.DeviceMesh.from_group(dist.group.WORLD, "cpu")
    near(dt.distribute_tensor(whole, again, [dt.Shard(0)]), whole, "a mesh of a group")


def _pipeline(name, stages_each, numbers, rank, size, near, group=None, of=lambda it: it, after=lambda stage: None):
    """One step by a schedule: each stage's gradients are those of one process with the whole
    batch.
    """
    count = stages_each * size
    net, whole = tower(), tower()
    per = LAYERS // count
    x, y = (it[0] for it in samples())
    wanted = nn.functional.mse_loss(whole(x), y)
    wanted.backward()
    modules = {number: net[number * per : (number + 1) * per] for number in numbers}
    stages = [PipelineStage(modules[number], number, count, CPU, group=group) for number in numbers]
    kind = schedules.get_schedule_class(name)
    schedule = kind(
        stages if issubclass(kind, schedules.PipelineScheduleMulti) else stages[0],
        n_microbatches=8,
        loss_fn=nn.functional.mse_loss,
    )
    losses = []
    given = [of(x)] if 0 in numbers else []
    schedule.step(*given, target=of(y) if count - 1 in numbers else None, losses=losses)
    for module in modules.values():
        after(module)
    for number, module in modules.items():
        for mine, its in zip(module.parameters(), whole[number * per : (number + 1) * per].parameters(), strict=True):
            near(mine.grad, its.grad, f"{name}: gradient of stage {number}")
    return losses, wanted


def pipelines(rank, size, near):
    for name in ("GPipe", "1F1B"):
        losses, wanted = _pipeline(name, 1, [rank], rank, size, near)
        if rank == size - 1:
            near(torch.stack(losses).mean(), wanted, f"{name}: loss")
    for name in ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"):
        _pipeline(name, 2, [rank, rank + size], rank, size, near)
    for name in ("ZBVZeroBubble", "DualPipeV"):
        _pipeline(name, 2, [rank, 2 * size - 1 - rank], rank, size, near)


def traced_pipeline(rank, size, near):
    """A model that PyTorch cuts by itself."""
    x = samples()[0][0]
    per = LAYERS // size
    parts = pipeline(
        tower(), (x.chunk(8)[0],), split_spec={str(per * it): SplitPoint.BEGINNING for it in range(1, size)}
    )
    stage = parts.build_stage(rank, CPU)
    output = schedules.ScheduleGPipe(stage, n_microbatches=8).step(*([x] if rank == 0 else []))
    if rank == size - 1:
        near(output, tower()(x), "output")


def two_at_once(rank, size, near):
    """Sharded and tensor parallel, and pipelined and data parallel, on four ranks."""
    if size != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    net = _sharded(_tensor(tower(), mesh["tensor"]), mesh=mesh["data"])
    train(net, mine(rank // 2, 2))
    near.all(dict(net.named_parameters()), alone()[1])
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stage"))

    def after(module):
        for it in module.parameters():
            dist.all_reduce(it.grad, dist.ReduceOp.AVG, mesh.get_group("data"))

    of = mine(mesh["data"].get_local_rank(), 2)
    _pipeline("1F1B", 1, [rank % 2], rank % 2, 2, near, mesh.get_group("stage"), of, after)


def checkpoints(rank, size, near):
    """Saved by FSDP2, loaded by tensor parallelism and by one process; asynchronously, too, on a
    group of its own.
    """
    # Instances share no directory: each has its own, and files are brought to the others.
    path = tempfile.mkdtemp()
    mesh = init_device_mesh("cpu", (size,))
    net = _sharded(tower(), mesh=mesh)
    stepper = optimizer(net.parameters())
    train(net, mine(rank, size), lambda _: stepper)
    at_save = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    model, state = get_state_dict(net, stepper)
    beside = dist.new_group(backend=dist.get_backend())
    dcp.save({"model": model, "optimizer": state}, checkpoint_id=f"{path}/now", process_group=beside)
    pending = dcp.async_save({"model": model}, checkpoint_id=f"{path}/later", process_group=beside)
    train(net, mine(rank, size))
    pending.result()
    _spread(path, rank, size)
    at_save = [at_save]
    dist.broadcast_object_list(at_save)
    at_save = at_save[0]

    for name in ("now", "later"):
        other = _tensor(tower(), mesh)
        with torch.no_grad():
            for it in other.parameters():
                it.zero_()
        given = {"model": get_model_state_dict(other)}
        dcp.load(given, checkpoint_id=f"{path}/{name}", process_group=beside)
        near.all(dict(other.named_parameters()), at_save)
    other = _sharded(tower(), mesh=mesh, reshard_after_forward=False)
    others = optimizer(other.parameters())
    model, state = get_state_dict(other, others)
    dcp.load({"model": model, "optimizer": state}, checkpoint_id=f"{path}/now", process_group=beside)
    set_state_dict(other, others, model_state_dict=model, optim_state_dict=state)
    train(other, mine(rank, size), lambda _: others)
    plain = tower()
    plain_stepper = optimizer(plain.parameters())
    train(plain, make=lambda _: plain_stepper)
    train(plain, make=lambda _: plain_stepper)
    wanted = {name: it.detach() for name, it in plain.named_parameters()}
    near.all(dict(other.named_parameters()), wanted)
    shutil.rmtree(path, ignore_errors=True)
    dist.barrier()


def _spread(directory, rank, size):
    """Every rank's files to every rank, as if the directory were shared."""
    files = {}
    for root, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, directory)] = file.read()
    every = [None] * size
    dist.all_gather_object(every, files)
    for path, content in itertools.chain.from_iterable(it.items() for it in every):
        target = os.path.join(directory, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            with open(target, "wb") as file:
                file.write(content)
    dist.barrier()


CASES = [
    ddp,
    uneven_inputs,
    zero,
    fsdp1,
    fsdp2,
    tensor_parallel,
    loss_parallel,
    dtensor,
    meshes,
    pipelines,
    traced_pipeline,
    two_at_once,
    checkpoints,
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="shoal")
    parser.add_argument("--only", nargs="*")
    given, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    dist.init_process_group(given.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    most = {}
    for case in CASES:
        if given.only and case.__name__ not in given.only:
            continue
        near = Difference(2e-4)
        case(rank, size, near)
        most[case.__name__] = near.most
        if rank == 0:
            print(f"{case.__name__}: on {size} ranks as on one, within {near.most:.1e}", flush=True)
    dist.destroy_process_group()
    if rank == 0 and "SM_MODEL_DIR" in os.environ:
        with open(os.path.join(os.environ["SM_MODEL_DIR"], "cases.json"), "w") as file:
            json.dump(most, file)


if __name__ == "__main__":
    main()
