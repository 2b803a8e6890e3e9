"""Writes the files in `aws/` with AWS's own smdebug 1.0.34: test data for `contract::tensors`.

Run by hand, in a scratch environment of Python 3.11 with PyTorch (CPU is enough):
pip install --no-deps smdebug==1.0.34, then numpy==2.2.6 protobuf==3.20.3 "setuptools<81" requests psutil
boto3 packaging pyinstrument==3.4.2.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.core.writer import FileWriter
from smdebug.trials import create_trial

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "aws")


def training():
    """Two layers: three steps of training with an evaluation in between."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    loss_function = torch.nn.CrossEntropyLoss()
    hook = smd.Hook(
        out_dir=str(OUT),
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients", "losses", "biases"],
    )
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(
        reductions=["min", "mean"], abs_reductions=["max"], norms=["l2"]
    )
    hook.register_module(model)
    hook.register_loss(loss_function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        hook.set_mode(smd.modes.TRAIN)
        x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
        if step == 1:
            hook.set_mode(smd.modes.EVAL)
            with torch.no_grad():
                loss_function(model(x), y)
    hook.close()


def types():
    """A tensor of each type that smdebug's writer knows, at step 9; and text."""
    with FileWriter(trial_dir=str(OUT), step=9, worker="worker_0") as writer:
        for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16", "?"]:
            values = np.array([[0, 1, 2], [3, 4, 100]])
            writer.write_tensor(tdata=values.astype(kind), tname=f"type/{kind}", mode=smd.modes.GLOBAL, mode_step=9)
        writer.write_tensor(tdata=np.float32(2.5), tname="type/scalar", mode=smd.modes.GLOBAL, mode_step=9)
        writer.write_tensor(tdata=np.zeros((0, 3), "f4"), tname="type/empty", mode=smd.modes.GLOBAL, mode_step=9)
        writer.write_tensor(tdata=np.array(["a", "é"]), tname="type/text", mode=smd.modes.GLOBAL, mode_step=9)


def values():
    """What smdebug's own reader finds: name, step and mode of each tensor, and its values."""
    found = []
    trial = create_trial(str(OUT))
    for name in trial.tensor_names():
        if name.startswith("type/"):
            continue  # Its reader lacks most types.
        tensor = trial.tensor(name)
        for mode in (smd.modes.TRAIN, smd.modes.EVAL):
            for step in tensor.steps(mode=mode):
                if tensor.reduction_values(step, mode=mode):
                    continue
                value = tensor.value(step, mode=mode)
                found.append([name, mode.name, step, list(value.shape), [float(x) for x in value.flatten()]])
    return found


shutil.rmtree(OUT, ignore_errors=True)
training()
types()
lines = ",\n".join(json.dumps(row) for row in values())
OUT.with_suffix(".json").write_text(f"[\n{lines}\n]\n")
