"""What the ranks of test_smp.py check with transformers: its GPT-2 in distributed form."""

import torch
from smp_calls import scratch
from smp_training import init, near
from transformers import GPT2Config, GPT2LMHeadModel

import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch.nn.huggingface import gpt2

LENGTH = 8


@smp.step
def step(model, ids, mask):
    loss = model(input_ids=ids, attention_mask=mask, labels=ids)["loss"]
    model.backward(loss)
    return loss


@smp.step
def predict(model, ids, mask):
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask)["logits"]


def plain():
    torch.manual_seed(4)
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_head=4,
            n_embd=16,
            n_positions=LENGTH,
            vocab_size=30,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
        )
    )


def data():
    """Tokens, and masks that leave the ends of some samples out."""
    ids = torch.randint(0, 30, (4, LENGTH), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return ids, mask


def replaced(rank, size):
    """Under tensor parallelism, with the weights of a plain model, it predicts and trains as
    that does; what is saved as a whole is a plain model's again.
    """
    ids, mask = data()
    alone = plain()
    optimizer = torch.optim.SGD(alone.parameters(), 0.1)
    wanted = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = alone(input_ids=ids, labels=ids)["loss"]
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    trained = alone.state_dict()

    def start():
        init(tensor_parallel_degree=2, ddp=True, prescaled_batch=True)
        with smp.tensor_parallelism():
            model = plain()
        model = smp.DistributedModel(model)
        assert type(model.get_module()) is gpt2.DistributedGPT2LMHead
        return model, smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))

    model, optimizer = start()
    model.load_state_dict(gpt2.translate_hf_state_dict_to_smdistributed(plain().state_dict(), LENGTH))
    theirs = plain()(input_ids=ids, attention_mask=mask)["logits"]
    ours = predict(model, ids, mask).concat()
    torch.testing.assert_close(ours[mask == 1], theirs[mask == 1], atol=1e-5, rtol=1e-4)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(step(model, ids, torch.ones_like(ids)).reduce_mean().item())
        optimizer.step()
    near(losses, wanted)
    folder = scratch()
    smp.save_checkpoint(folder, "whole", partial=False, model=model, optimizer=optimizer)
    saved = torch.load(f"{folder}/whole", weights_only=True)
    found = plain()
    found.load_state_dict(saved, strict=True)
    for name, it in found.state_dict().items():
        torch.testing.assert_close(it, trained[name], atol=1e-5, rtol=1e-4)
    model, _ = start()
    smp.resume_from_checkpoint(folder, partial=False, translate_function=gpt2.translate_hf_state_dict_to_smdistributed)
    torch.testing.assert_close(
        predict(model, ids, torch.ones_like(ids)).concat(),
        found(input_ids=ids)["logits"].detach(),
        atol=1e-5,
        rtol=1e-4,
    )
