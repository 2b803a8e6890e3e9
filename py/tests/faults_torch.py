"""What ranks of test_torch_faults.py do: a step by each way to train with torch."""

import datetime

import torch
import torch._dynamo  # An optimizer loads it when it is first used: once here, and not in each rank.
import torch.distributed as dist
import torch.sagemaker as tsm
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
import smdistributed.modelparallel.torch as smp
from shoal.torch import LargeBatch, LocalTraining

torch.set_num_threads(1)


def net(case, layers=1):
    """A model, on the faulty rank maybe of other sizes or types."""
    torch.manual_seed(0)
    width = 5 if case.differs and case.fault == "shape" else 4
    model = nn.Sequential(
        nn.Linear(3, width), *(nn.Linear(width, width) for _ in range(layers - 1)), nn.Linear(width, 1)
    )
    return model.double() if case.differs and case.fault == "dtype" else model


def loss(model):
    own = next(model.parameters(), torch.zeros(1))
    return model(torch.ones(6, 3, dtype=own.dtype)).square().mean()


def training(model, optimizer):
    """A step of a plain loop."""

    def step():
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    return step


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def join(backend, seconds=40):
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))


def horovod(case):
    hvd.init()
    model = net(case)
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    case.run(training(model, optimizer), lambda: hvd.allreduce(torch.ones(7), name="metric"))


def data_parallel(case):
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    join("smddp")
    model = DistributedDataParallel(net(case))
    case.run(training(model, sgd(model)), lambda: dist.all_reduce(torch.ones(7)))


def collective(case):
    """Without a model that torch compares: an operation of the process group itself."""
    join("smddp")
    tensor = torch.ones(
        8 if case.differs and case.fault == "shape" else 9,
        dtype=torch.float64 if case.differs and case.fault == "dtype" else torch.float32,
    )
    case.run(lambda: dist.all_reduce(tensor), lambda: dist.broadcast(torch.ones(7), 0))


@smp.step
def smp_step(model, x):
    value = model(x).square().mean()
    model.backward(value)
    return value


def model_parallel(case, layers=1, **settings):
    """Replicas."""
    smp.init({"ddp": True, **settings})
    model = smp.DistributedModel(net(case, layers))
    optimizer = smp.DistributedOptimizer(sgd(model))

    def step():
        optimizer.zero_grad()
        smp_step(model, torch.ones(6, 3))
        optimizer.step()

    case.run(step, smp.barrier)


def pipeline(case):
    """Stages: ranks that wait for each other's messages notice another order by the deadline
    only.
    """
    join("smddp", 5)
    model_parallel(case, layers=5, pipeline_parallel_degree=3, microbatches=3)


def sharded(case):
    join("smddp")
    tsm.init({})
    model = FullyShardedDataParallel(tsm.transform(net(case)), device_id=torch.device("cpu"), sync_module_states=True)
    case.run(training(model, sgd(model)), lambda: dist.all_reduce(torch.ones(7)))


def large_batch(case):
    join("shoal")
    model = net(case)
    optimizer = LargeBatch(sgd(model), simulate=6)
    once = training(model, optimizer)

    def step():
        for _ in range(optimizer.passes):
            once()

    case.run(step, lambda: dist.all_reduce(torch.ones(7)))


def local_training(case):
    join("shoal")
    model = net(case)
    local = LocalTraining(model, sgd(model), every=1)

    def step():
        local.zero_grad()
        loss(model).backward()
        local.step()

    case.run(step, lambda: dist.all_reduce(torch.ones(7)))
