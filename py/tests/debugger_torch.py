"""Checks of `smdebug.pytorch`."""

import copy
import io
import json
import math
import os
import tempfile
from pathlib import Path

import smdebug.pytorch as smd
import torch
from debugger_files import Lines, raises
from smdebug.exceptions import SMDebugError, SMDebugNotImplementedError, SMDebugRuntimeError, SMDebugValueError
from torch import nn


class Net(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, samples):
        return self.fc2(self.relu(self.fc1(samples)))


def trained(hook, steps=5, model=None, each=lambda step: None):
    """A model after some steps that the hook has seen; the hook is closed."""
    torch.manual_seed(0)
    model, loss = model or Net(), nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        each(step)
        optimizer.zero_grad()
        loss(model(torch.ones(5, 4)), torch.zeros(5, dtype=torch.long)).backward()
        optimizer.step()
    hook.close()
    smd.del_hook()
    return model


def saved(steps=5, model=None, each=lambda step: None, **arguments):
    """The trial of a short training with a hook of these arguments."""
    folder = tempfile.mkdtemp()
    trained(smd.Hook(out_dir=folder, **arguments), steps, model, each)
    return smd.create_trial(folder)


def every(interval, **more):
    return smd.SaveConfig(save_interval=interval, **more)


def default_is_losses_every_500_steps():
    trial = saved(steps=502)
    assert trial.tensor_names() == ["CrossEntropyLoss_output_0"]
    assert trial.steps() == [0, 500]
    model = Net()
    with tempfile.TemporaryDirectory() as folder:
        hook = smd.Hook(out_dir=folder)
        hook.register_module(model)
        model(torch.ones(1, 4))
        # Nothing is registered on layers and parameters.
        assert len(hook._handles) == 1 and not model.fc1._forward_hooks and not model.fc1.weight._backward_hooks
        hook.close()


def collections_are_saved():
    trial = saved(save_config=every(2), include_collections=["weights", "biases", "gradients", "losses"])
    assert trial.steps() == [0, 2, 4]
    assert trial.tensor_names(collection="weights") == ["Net_fc1.weight", "Net_fc2.weight"]
    assert trial.tensor_names(collection="biases") == ["Net_fc1.bias", "Net_fc2.bias"]
    gradients = trial.tensor_names(collection="gradients")
    assert gradients == [f"gradient/Net_{name}" for name in ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")]
    weight, gradient = trial.tensor("Net_fc2.weight"), trial.tensor("gradient/Net_fc2.weight")
    losses = list(trial.tensor("CrossEntropyLoss_output_0").values().values())
    assert losses[0] > losses[1] > losses[2]
    every_step = saved(save_config=every(1), include_collections=["weights", "gradients"])
    moved = every_step.tensor("Net_fc2.weight").value(1)
    torch.testing.assert_close(torch.tensor(moved), torch.tensor(weight.value(0) - 0.1 * gradient.value(0)))


def patterns_and_reductions():
    def configure(hook):
        hook.get_collection("relu").include("relu_output")
        hook.get_collection("relu").reduction_config = smd.ReductionConfig(
            reductions=["mean", "std"], abs_reductions=["max"], norms=["l2"], save_shape=True
        )

    folder = tempfile.mkdtemp()
    hook = smd.Hook(out_dir=folder, save_config=every(2), include_collections=["relu"], include_regex=["fc1_input"])
    configure(hook)
    trained(hook)
    trial = smd.create_trial(folder)
    assert trial.tensor_names() == ["CrossEntropyLoss_output_0", "fc1_input_0", "relu_output_0"]
    relu = trial.tensor("relu_output_0")
    assert set(relu.reduction_values(2)) == {("mean", False), ("std", False), ("max", True), ("l2", False)}
    assert relu.shape(2) == (5, 3) and relu.reduction_value(2, "max", abs=True) >= relu.reduction_value(2, "mean")
    assert trial.tensor("fc1_input_0").value(4).shape == (5, 4)
    everything = saved(steps=1, save_all=True).tensor_names()
    assert {"Net_output_0", "fc2_output_0", "CrossEntropyLoss_input_1", "gradient/Net_fc1.bias"} <= set(everything)
    module = Net()
    hook = smd.Hook(out_dir=tempfile.mkdtemp(), include_collections=["layer"])
    hook.get_collection("layer").add_module_tensors(module.fc1, inputs=True)
    trained(hook, 1, module)
    assert set(smd.create_trial(hook.out_dir).tensor_names(collection="layer")) == {"fc1_input_0", "fc1_output_0"}


def modes_have_steps_of_their_own():
    hook = smd.Hook(
        out_dir=tempfile.mkdtemp(),
        save_config={smd.modes.TRAIN: smd.SaveConfigMode(3), smd.modes.EVAL: smd.SaveConfigMode(1)},
        include_collections=["gradients"],
    )
    trained(hook, 8, each=lambda step: hook.set_mode(smd.modes.EVAL if step in (3, 4) else smd.modes.TRAIN))
    trial = smd.create_trial(hook.out_dir)
    assert trial.steps() == [0, 3, 4, 5], trial.steps()
    assert (trial.steps(smd.modes.TRAIN), trial.steps(smd.modes.EVAL)) == ([0, 3], [0, 1])
    # Gradients are of training.
    assert trial.tensor("gradient/Net_fc1.bias").steps(smd.modes.EVAL) == []
    raises(SMDebugValueError, lambda: hook.set_mode("train"), "Valid modes are TRAIN")


def tensors_of_the_script():
    folder = tempfile.mkdtemp()
    hook = smd.Hook(out_dir=folder, save_config=every(2))

    def each(step):
        hook.save_scalar("lr", 0.1 * step)
        hook.save_tensor("mine", torch.full((2,), float(step), dtype=torch.bfloat16), ["default", "own"])

    trained(hook, 4, each=each)
    trial = smd.create_trial(folder)
    assert trial.tensor("mine").values().keys() == {0, 2}
    assert trial.tensor("mine").value(0).tolist() == [1, 1] and "mine" in trial.collection("own").tensor_names
    # Each goes into the files of the saved step that it is given in or behind.
    assert trial.tensor("scalar/lr").steps() == [0, 2]
    assert math.isclose(trial.tensor("scalar/lr").value(2), 0.1 * 3)


def types_of_torch():
    class Unusual(nn.Module):
        def forward(self, samples):
            return samples.bfloat16(), samples.long(), samples.to_sparse(), samples.double(), [samples.half() > 0]

    model = Unusual()
    model.weight = nn.Parameter(torch.zeros(1))
    hook = smd.Hook(out_dir=tempfile.mkdtemp(), save_all=True, save_config=every(1))
    hook.register_module(model)
    model(torch.eye(2))
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    kinds = [trial.tensor(f"Unusual_output_{at}").value(0).dtype.name for at in range(5)]
    assert kinds == ["float32", "int64", "float32", "float64", "bool"]
    assert all((trial.tensor(f"Unusual_output_{at}").value(0) == torch.eye(2).numpy()).all() for at in range(5))


def configurations_of_one_collection_are_joined():
    """The SDK keeps configurations in a set: a rule's own and the script's come in any order."""
    own, rules = {"reductions": "mean"}, {"save_interval": "6", "save_steps": "1"}
    whole = {"save_interval": "3", "reductions": "mean", "end_step": "4"}
    for order in (1, -1):
        folder = tempfile.mkdtemp()
        named = [("gradients", own), ("gradients", rules), ("weights", whole), ("weights", {"reductions": "max"})]
        config = {
            "LocalPath": folder,
            "HookParameters": {"save_interval": "2"},
            "CollectionConfigurations": [
                {"CollectionName": name, "CollectionParameters": given} for name, given in named[::order]
            ],
        }
        path = Path(tempfile.mkdtemp(), "debughookconfig.json")
        path.write_text(json.dumps(config))
        trained(smd.Hook.create_from_json_file(str(path)), 7)
        trial = smd.create_trial(folder)
        gradient, weight = trial.tensor("gradient/Net_fc1.bias"), trial.tensor("Net_fc1.weight")
        assert gradient.steps() == [0, 1, 2, 4, 6], (order, gradient.steps())
        assert gradient.value(2).shape and set(gradient.reduction_values(2)) == {("mean", False)}, order
        assert weight.steps() == [0, 2, 4, 6], (order, weight.steps())
        assert set(weight.reduction_values(2)) == {("mean", False), ("max", False)}, order


def configurations_are_followed():
    folder = tempfile.mkdtemp()
    config = {
        "S3OutputPath": "s3://bucket",
        "LocalPath": folder,
        "HookParameters": {"save_interval": "3", "eval.save_steps": "1,2", "include_workers": "all"},
        "CollectionConfigurations": [
            {"CollectionName": "weights", "CollectionParameters": {"save_interval": "2", "end_step": "3"}},
            {"CollectionName": "gradients", "CollectionParameters": {"reductions": "mean,abs_l1_norm"}},
            {"CollectionName": "losses", "CollectionParameters": None},
            {"CollectionName": "strange"},
            {"CollectionName": "convolutions", "CollectionParameters": {"include_regex": "conv.*,relu_input"}},
        ],
    }
    path = Path(tempfile.mkdtemp(), "debughookconfig.json")
    path.write_text(json.dumps(config))
    with Lines() as lines:
        trained(smd.Hook.create_from_json_file(str(path)), 7)
    trial = smd.create_trial(folder)
    assert trial.tensor("Net_fc1.weight").steps() == [0, 2]
    assert trial.tensor("relu_input_0").steps() == [0, 3, 6]
    assert set(trial.tensor("gradient/Net_fc1.bias").reduction_values(3)) == {("mean", False), ("l1", True)}
    assert any(line.startswith("The collection strange is none of the framework's (all, biases, ") for line in lines)
    # At the first step that is saved, and at the end with the names of all steps.
    early, line = [one for one in lines if "conv.* (collection convolutions)" in one]
    assert "There are: " in early
    assert "There are: CrossEntropyLoss_input_0" in line and "relu_input_0" in line
    config["HookParameters"]["save_interval"] = "often"
    path.write_text(json.dumps(config))
    raises(
        SMDebugValueError,
        lambda: smd.Hook.create_from_json_file(str(path)),
        "save_interval='often' must be a whole number",
    )
    raises(FileNotFoundError, lambda: smd.Hook.create_from_json_file("/nowhere.json"))


def stored_models_have_no_hook():
    folder = tempfile.mkdtemp()
    hook = smd.Hook(out_dir=folder, save_all=True, save_config=every(1))
    model = Net()
    hook.register_module(model)
    model(torch.ones(1, 4)).sum().backward()
    copied = copy.deepcopy(model)
    stored = io.BytesIO()
    torch.save(model, stored)
    assert b"smdebug" not in stored.getvalue()
    stored.seek(0)
    for other in (copied, torch.load(stored, weights_only=False)):
        before = hook.step
        torch.testing.assert_close(other(torch.ones(1, 4)), model.fc2(model.relu(model.fc1(torch.ones(1, 4)))))
        assert hook.step == before
    hook.close()


def errors_end_the_hook_only():
    folder = tempfile.mkdtemp()
    hook = smd.Hook(out_dir=folder, save_config=every(1), include_collections=["weights"])

    def each(step):
        if step == 2:
            # The disk is full, as far as the hook sees.
            os.rename(f"{folder}/events", f"{folder}/before")
            Path(folder, "events").touch()

    with Lines() as lines:
        trained(hook, 5, each=each)
    assert [line for line in lines if "hook is off" in line and "the training continues" in line], lines
    assert len([line for line in lines if "hook is off" in line]) == 1 and hook.failed
    assert not Path(folder, "claim.smd").exists()
    raises(
        SMDebugError, lambda: smd.Hook(out_dir=tempfile.mkdtemp()).register_module(1), "must be type torch.nn.Module"
    )
    raises(SMDebugError, lambda: smd.Hook(out_dir=tempfile.mkdtemp()).register_loss(Net()), "_Loss")
    raises(SMDebugNotImplementedError, smd.SessionHook, "Use smdebug.tensorflow.KerasHook")
    smd.del_hook()


def a_directory_has_one_run():
    folder = tempfile.mkdtemp()
    trained(smd.Hook(out_dir=folder), 1)
    raises(SMDebugRuntimeError, lambda: smd.Hook(out_dir=folder), "holds a run")
    other = tempfile.mkdtemp()
    Path(other, "claim.smd").touch()
    with Lines() as lines:
        trained(smd.Hook(out_dir=other), 1)
    assert any("Another process writes to" in line for line in lines)
    assert not Path(other, "events").exists()
    os.environ["TRAINING_JOB_NAME"] = "job"
    try:
        # The platform ends the run's files, after the last upload.
        platform = tempfile.mkdtemp()
        trained(smd.Hook(out_dir=platform), 1)
        assert Path(platform, "collections").is_dir() and not Path(platform, "training_job_end.ts").exists()
    finally:
        del os.environ["TRAINING_JOB_NAME"]


def steps_go_on_behind_a_checkpoint():
    checkpoints = tempfile.mkdtemp()
    config = Path(tempfile.mkdtemp(), "checkpointconfig.json")
    config.write_text(json.dumps({"LocalPath": checkpoints}))
    os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = str(config)
    try:
        hook = smd.Hook(out_dir=tempfile.mkdtemp(), save_config=every(1))

        def each(step):
            if step == 3:
                Path(checkpoints, "model.pt").write_text("weights")
                hook._state_store._next_look = 0

        trained(hook, 5, each=each)
        again = smd.Hook(out_dir=tempfile.mkdtemp(), save_config=every(1))
        trained(again, 2)
    finally:
        del os.environ["CHECKPOINT_CONFIG_FILE_PATH"]
    # The checkpoint was there when step 2 ended.
    assert smd.create_trial(again.out_dir).steps() == [3, 4]
    assert json.loads(Path(checkpoints, "metadata.json").read_text())[0]["latest-global-step-seen"] == 2


def tensorboard_sees_scalars_and_histograms():
    folder = tempfile.mkdtemp()
    saved(save_config=every(2), include_collections=["weights", "losses"], tensorboard_dir=folder)
    names = sorted(path.name[:12] for path in Path(folder, "GLOBAL").iterdir())
    assert names == ["000000000000", "000000000002", "000000000004"]
    content = b"".join(path.read_bytes() for path in Path(folder, "GLOBAL").iterdir())
    assert b"weights/Net_fc1.weight" in content and b"CrossEntropyLoss_output_0" in content


def write_for_aws(folder):
    """What AWS's reader is to find, and a line of what that is."""
    hook = smd.Hook(out_dir=folder, save_all=True, save_config=every(2))
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["mean"], norms=["l2"], save_raw_tensor=True)

    def each(step):
        hook.set_mode(smd.modes.EVAL if step == 3 else smd.modes.TRAIN)
        hook.save_scalar("mine", step)

    trained(hook, 6, each=each)
    trial = smd.create_trial(folder)
    values = {name: trial.tensor(name).values() for name in trial.tensor_names()}
    print(json.dumps({name: {step: one.tolist() for step, one in by.items()} for name, by in values.items()}))
