"""A rank of test_gpu.py's programs: scripts for SageMaker's libraries on a GPU, each a process
that starts its library by itself.
"""

import sys

import torch
import torch.distributed as dist
from gpu_device import DEVICE, IS_GPU, batches, near, network, same_weights
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def _trained(net, model, inputs, targets):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(3):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    return net


def data_parallel():
    """`smdistributed.dataparallel`: the backend "smddp" has tensors on both."""
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    dist.init_process_group("smddp")
    rank, size = dist.get_rank(), dist.get_world_size()
    for where in (DEVICE, "cpu"):
        it = torch.full((1000,), rank + 1.0, device=where)
        dist.all_reduce(it)
        near(it, torch.full((1000,), size * (size + 1) / 2))
    inputs, targets = batches(size)
    net = network(seed=1 + rank)
    _trained(
        net, DistributedDataParallel(net, device_ids=[DEVICE.index] if IS_GPU else None), inputs[rank], targets[rank]
    )
    wanted = network()
    same_weights(net, _trained(wanted, wanted, inputs, targets))
    dist.destroy_process_group()


def first_version():
    """Its first version, whose module stands beside torch's own."""
    import smdistributed.dataparallel.torch.distributed as smddp
    from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as Parallel

    smddp.init_process_group()
    it = torch.full((3,), 2.0, device=DEVICE)
    smddp.all_reduce(it)
    near(it, torch.full((3,), 2.0))
    inputs, targets = batches(1)
    net, wanted = network(), network()
    _trained(net, Parallel(net), inputs[0], targets[0])
    same_weights(net, _trained(wanted, wanted, inputs[0], targets[0]))


def _model_parallel(dtype=None, **config):
    import smdistributed.modelparallel.torch as smp

    smp.init({"microbatches": 2, "ddp": True, **config})
    size = smp.dp_size()
    inputs, targets = batches(size)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def step(model, x, y):
        loss = (model(x).float() - y).square().mean()
        model.backward(loss)
        return loss

    wanted = network()
    plain = torch.optim.SGD(wanted.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        x = inputs[smp.dp_rank()]
        loss = step(model, x if dtype is None else x.to(dtype), targets[smp.dp_rank()]).reduce_mean()
        optimizer.step()
        plain.zero_grad()
        value = (wanted(inputs) - targets).square().mean()
        value.backward()
        plain.step()
    assert loss.device == DEVICE and next(model.local_parameters()).device == DEVICE
    mean = sum(smp.allgather(loss.item(), smp.DP_GROUP)) / size
    near(mean, value.item(), 1e-5 if dtype is None else 2e-2)
    for name, it in model.state_dict().items():
        assert dtype is None or next(model.local_parameters()).dtype is dtype
        near(it.float(), wanted.state_dict()[name], 1e-5 if dtype is None else 2e-2)


def model_parallel():
    """`smdistributed.modelparallel.torch`."""
    _model_parallel()


def model_parallel_fp16():
    """With parameters of 16 bits and float32 masters of them."""
    _model_parallel(torch.float16, fp16=True)


def model_parallel_bf16():
    """The same."""
    _model_parallel(torch.bfloat16, bf16=True)


def pipeline():
    """Two stages, a GPU each: activations and their gradients travel."""
    _model_parallel(pipeline_parallel_degree=2)


def model_parallel_shared():
    """Ranks that share a GPU are told, instead of NCCL's words at the first operation."""
    import smdistributed.modelparallel.torch as smp
    from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError

    try:
        smp.init({"pipeline_parallel_degree": 2})
    except SMPRuntimeError as error:
        assert "ranks 0, 1 share a GPU" in str(error) and "CUDA_VISIBLE_DEVICES" in str(error), error
        return
    raise AssertionError("nothing was raised")


def _sharded_model(seed):
    import torch.sagemaker as tsm
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(tsm.transform(network(seed=seed)), device_id=DEVICE, use_orig_params=True)


def fsdp(directory):
    """`torch.sagemaker` over NCCL: as without it."""
    import torch.sagemaker as tsm

    dist.init_process_group("cpu:gloo,cuda:nccl")
    tsm.init({"hybrid_shard_degree": 1})
    inputs, targets = batches(1)
    model, wanted = _sharded_model(1), network()
    _trained(model, model, inputs[0], targets[0])
    _trained(wanted, wanted, inputs[0], targets[0])
    assert tsm.state.mesh is None or tsm.state.mesh.device_type == "cuda"
    near(
        nn.utils.parameters_to_vector(model.parameters()).detach(),
        nn.utils.parameters_to_vector(wanted.parameters()).detach(),
    )


def async_checkpoint(directory):
    """Written while the training goes on, and read into another model."""
    import torch.sagemaker as tsm
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
    from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver

    dist.init_process_group("cpu:gloo,cuda:nccl")
    tsm.init({"hybrid_shard_degree": 1})
    inputs, targets = batches(1)
    model, other = _sharded_model(1), _sharded_model(9)
    saved = {name: it.detach().clone() for name, it in model.named_parameters()}
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state_dict_saver.async_save(
            {"model": model.state_dict()}, checkpoint_id=f"{directory}/1", process_group=model.process_group
        )
    _trained(model, model, inputs[0], targets[0])
    state_dict_saver.maybe_finalize_async_calls(blocking=True, process_group=model.process_group)
    assert any(not torch.equal(it, saved[name]) for name, it in model.named_parameters())
    with FullyShardedDataParallel.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
        given = {"model": other.state_dict()}
        state_dict_loader.load(given, checkpoint_id=f"{directory}/1", process_group=other.process_group)
        other.load_state_dict(given["model"])
    for name, it in other.named_parameters():
        assert it.device == DEVICE and torch.equal(it, saved[name]), name


if __name__ == "__main__":
    {name: it for name, it in globals().items() if callable(it)}[sys.argv[1]](*sys.argv[2:])
    if dist.is_initialized():
        dist.destroy_process_group()
