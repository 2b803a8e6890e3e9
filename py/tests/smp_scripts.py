"""What the ranks of test_smp.py check: scripts as vendors' examples are written."""

import os
import warnings

import torch
from smp_calls import scratch
from torch import nn

import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch import launch


def mnist_script(rank, size):
    """The calls of a script that trains digits: scaler, scalars, evaluation under a step,
    scheduler over the optimizer, states of parts.
    """

    class GroupedNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.net1 = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
            self.net2 = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(4 * 26 * 26, 10))

        def forward(self, x):
            return torch.log_softmax(self.net2(self.net1(x)), 1)

    @smp.step
    def train(model, scaler, data, target):
        with torch.autocast("cpu", enabled=False):
            output = model(data)
        loss = nn.functional.nll_loss(output, target, reduction="mean")
        model.backward(scaler.scale(loss))
        return output, loss

    @smp.step
    def test(model, data, target):
        output = model(data)
        loss = nn.functional.nll_loss(output, target, reduction="sum").item()
        return loss, output.argmax(1, keepdim=True).eq(target.view_as(output.argmax(1, keepdim=True))).sum().item()

    launch.forget()
    os.environ["SM_HP_MP_PARAMETERS"] = (
        '{"partitions": 2, "microbatches": 4, "placement_strategy": "spread", "pipeline": "simple", "optimize": "speed", "ddp": true}'
    )
    smp.init()
    del os.environ["SM_HP_MP_PARAMETERS"]
    torch.manual_seed(7)
    model = smp.DistributedModel(GroupedNet())
    amp = smp.amp.GradScaler(enabled=False)
    optimizer = smp.DistributedOptimizer(torch.optim.Adadelta(model.parameters(), lr=4.0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        x, y = torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))
        losses = []
        for _ in range(3):
            model.train()
            optimizer.zero_grad()
            _, loss_mb = train(model, amp, x, y)
            losses.append(loss_mb.reduce_mean().item())
            amp.step(optimizer)
            amp.update()
            scheduler.step()
    assert losses[-1] < losses[0] and abs(optimizer.param_groups[0]["lr"] - 4 * 0.7**3) < 1e-9
    model.eval()
    with torch.no_grad():
        loss, right = test(model, x, y)
    assert len(loss) == len(right) == 4 and smp.allgather(sum(right), smp.MP_GROUP) == [sum(right)] * 2
    folder = scratch()
    if smp.dp_rank() == 0:
        smp.save(
            {"model_state_dict": model.local_state_dict(), "optimizer_state_dict": optimizer.local_state_dict()},
            f"{folder}/pt_mnist_checkpoint.pt",
            partial=True,
        )
    smp.barrier()
    assert sorted(os.listdir(folder)) == ["pt_mnist_checkpoint.pt_0", "pt_mnist_checkpoint.pt_1"]
    found = smp.load(f"{folder}/pt_mnist_checkpoint.pt", partial=True)
    model.load_state_dict(found["model_state_dict"])
    optimizer.load_state_dict(found["optimizer_state_dict"])


def gpt_script(rank, size):
    """The calls of scripts that train GPT-2: creation with delay, partition after wrapping,
    checkpointing of a Sequential, half precision, clipping, hooks, checkpoints.
    """
    for settings in (
        {"tensor_parallel_degree": 2, "prescaled_batch": True, "fp16": True, "optimize": "speed"},
        {
            "pipeline_parallel_degree": 2,
            "auto_partition": False,
            "default_partition": 0,
            "fp16": True,
            "skip_tracing": True,
        },
        # The embedding, which is the head, too, is no small parameter of the root.
        {"sharded_data_parallel_degree": 2, "bf16": True, "sdp_param_persistence_threshold": 10},
    ):
        launch.forget()
        smp.init(
            {
                "ddp": True,
                "microbatches": 2,
                "delayed_parameter_initialization": True,
                "offload_activations": True,
                "activation_loading_horizon": 4,
                "_match_weights": False,
                **settings,
            }
        )
        torch.manual_seed(3)
        with smp.model_creation(
            tensor_parallelism=smp.tp_size() > 1, zero_init=smp.tp_rank() != 0, flash_attention=False
        ):
            model = smp.nn.DistributedTransformerLMHead(
                4,
                2,
                8,
                16,
                32,
                vocab_size=20,
                num_positions=8,
                causal_mask_size=8,
                pre_layernorm=True,
                post_layernorm=False,
                use_normal_initialization=True,
            )
        model = smp.DistributedModel(model, trace_device="gpu", backward_passes_per_step=1)
        layers = model.get_module().transformer.seq_layers
        if smp.pp_size() > 1:
            for at, layer in enumerate(layers.children()):
                smp.set_partition(layer, at * 2 // len(layers))
        decays = [it for it in model.parameters() if it.dim() > 1]
        others = [it for it in model.parameters() if it.dim() <= 1]
        optimizer = torch.optim.AdamW([{"params": decays}, {"params": others, "weight_decay": 0.0}], lr=0.01)
        smp.set_activation_checkpointing(layers, pack_args_as_tuple=True, strategy="each")
        optimizer = smp.DistributedOptimizer(
            optimizer,
            static_loss_scale=None,
            dynamic_loss_scale=True,
            dynamic_loss_args={"init_scale": 2.0**12, "scale_window": 1000, "min_scale": 1, "delayed_shift": 2},
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: 1.0)
        seen = []
        model.register_post_partition_hook(lambda model, optimizer, seen=seen: seen.append(smp.rank()))

        @smp.step
        def step(model, optimizer, ids, mask):
            loss, logits = model((ids, mask, None, None, ids))
            model.backward(loss)
            return loss

        ids = torch.randint(0, 20, (4, 8), generator=torch.Generator().manual_seed(1))
        losses = []
        for _ in range(5):
            optimizer.zero_grad(set_to_none=True)
            loss = step(model, optimizer, ids, torch.zeros(4, 8)).reduce_mean()
            if smp.state.cfg.fp16:
                optimizer.clip_master_grads(1.0)
            optimizer.step()
            if not (smp.state.cfg.fp16 and optimizer.overflow):
                scheduler.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] and seen == [rank], (settings, losses)
        folder = scratch()
        smp.save_checkpoint(
            folder,
            tag="total_steps5",
            partial=True,
            model=model,
            optimizer=optimizer,
            user_content={"total_steps": 5},
            num_kept_partial_checkpoints=2,
        )
        full = model.state_dict(gather_to_rank0=True)
        if rank == 0:
            smp.save(full, f"{folder}/full.pt", partial=False)
            assert full["word_embedding.weight"].shape == (20, 16)
        assert smp.resume_from_checkpoint(folder, partial=True)["total_steps"] == 5
