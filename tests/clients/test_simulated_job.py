"""An unchanged DistributedDataParallel script trains on 2 instances as on 4 where its job is
simulated.
"""

import json

import pytest
from test_distributions import PYTORCH
from test_script_mode import create

SCRIPT = """
import json, os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("shoal")
inputs = torch.randn(147, 12, generator=torch.Generator().manual_seed(3))
dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
sampler = DistributedSampler(dataset, shuffle=True, seed=5)
loader = DataLoader(dataset, batch_size=5, sampler=sampler)
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(12, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for samples, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(samples), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
if dist.get_rank() == 0:
    weights = [it.flatten().tolist() for it in net.parameters()]
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json"), "w") as file:
        json.dump({"rate": scheduler.get_last_lr(), "weights": sum(weights, [])}, file)
dist.barrier()
dist.destroy_process_group()
"""


def test_two_instances_train_as_four(house, jobs, package):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")

    def start(instances, variables=None, **hyperparameters):
        given = {"sagemaker_torch_distributed_enabled": "true", **hyperparameters}
        return create(
            jobs,
            {"train.py": SCRIPT},
            image=PYTORCH,
            instances=instances,
            hyperparameters=given,
            Environment=variables or {},
        )

    plain = start(4)
    simulated = [start(2, {"SHOAL_SIMULATE_INSTANCES": "4"}), start(2, shoal_simulate_instances="4")]
    jobs.completed(plain)
    expected = json.loads(jobs.artifact(plain)["weights.json"])
    for name in simulated:
        jobs.completed(name)
        result = json.loads(jobs.artifact(name)["weights.json"])
        assert result["weights"] == pytest.approx(expected["weights"], abs=1e-5)
        assert result["rate"] == expected["rate"]
        assert any("2 ranks train as 4 workers" in line for line in jobs.lines(name, "algo-1")), jobs.lines(name)
