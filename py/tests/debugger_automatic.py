"""Checks of the hook that attaches itself: a script that knows nothing of it, in a process with the
platform's `sitecustomize` and configuration.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import smdebug
from debugger_files import AWS
from smdebug import modes
from smdebug.trials import create_trial

HERE = Path(__file__).parent
#: With the package under test, which these processes have in their path already.
PATHS = [str(HERE.parents[1] / "crates/agent/python/start"), str(Path(smdebug.__file__).parents[1])]
assert AWS.is_dir()


def start(script, *arguments, collections=(), parameters=None, config=True, **more):
    """A script's process, and where its tensors will be."""
    folder = tempfile.mkdtemp()
    out = f"{folder}/tensors"
    named = [{"CollectionName": name, "CollectionParameters": given} for name, given in collections]
    hook = {"LocalPath": out, "HookParameters": parameters or {}}
    path = Path(folder, "debughookconfig.json")
    if config:
        path.write_text(json.dumps(hook | ({"CollectionConfigurations": named} if named else {})))
    environment = os.environ | {"SMDEBUG_CONFIG_FILE_PATH": str(path), "PYTHONPATH": os.pathsep.join(PATHS)} | more
    command = [sys.executable, str(HERE / script), *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return process, out


def ended(process, out):
    """Where tensors are, and what the script wrote."""
    text = process.communicate(timeout=240)[0]
    assert process.returncode == 0, text
    return out, text


def ran(*arguments, **more):
    """The same of a script that is started now."""
    return ended(*start(*arguments, **more))


EVERYTHING = [
    ("weights", None),
    ("gradients", {"reductions": "mean,abs_max"}),
    ("losses", None),
    ("relu", {"include_regex": "relu_output"}),
]


def _start_torch(kind, more=None, **parameters):
    return start("debugger_script_torch.py", kind, collections=EVERYTHING, parameters=parameters, **(more or {}))


def _ended_torch(started):
    out, text = ended(*started)
    assert "Traceback" not in text and "hook is off" not in text, text
    return create_trial(out), text


def torch_script():
    trial, text = _ended_torch(_start_torch("plain", save_interval="2"))
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4] and trial.steps(mode=modes.EVAL) == [0], text
    assert trial.tensor_names(collection="weights") == ["Net_fc1.weight", "Net_fc2.weight"]
    assert len(trial.tensor_names(collection="gradients")) == 4
    assert trial.tensor("relu_output_0").value(0, mode=modes.EVAL).shape == (5, 3)
    # The loss's own module, and one that only its function shows.
    assert trial.tensor("CrossEntropyLoss_output_0").steps(mode=modes.TRAIN) == [0, 2, 4]
    assert trial.tensor("MSELoss_output_0").steps(mode=modes.TRAIN) == [0, 2, 4]
    printed = {
        int(step): float(loss) for step, loss in (line.split()[1:] for line in text.splitlines() if "LOSS" in line)
    }
    for step, value in trial.tensor("CrossEntropyLoss_output_0").values(mode=modes.TRAIN).items():
        np.testing.assert_allclose(value, printed[step], rtol=1e-6)


def torch_compiled():
    folder = tempfile.mkdtemp()
    summaries = Path(folder, "tensorboardoutputconfig.json")
    summaries.write_text(json.dumps({"LocalPath": f"{folder}/tensorboard"}))
    # As on the platform: it asks for TensorBoard's files, and ends the run's itself.
    platform = {"TRAINING_JOB_NAME": "job", "TENSORBOARD_CONFIG_FILE_PATH": str(summaries)}
    trial, text = _ended_torch(_start_torch("compiled", platform, save_interval="2"))
    assert not Path(trial.path, "training_job_end.ts").exists() and not Path(trial.path, "tensorboard").exists()
    assert len(list(Path(folder, "tensorboard/TRAIN").iterdir())) == 3
    assert "Inputs and outputs of layers within a compiled model are not saved: relu" in text
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4]
    assert trial.tensor_names(collection="weights") == ["Net_fc1.weight", "Net_fc2.weight"]
    assert len(trial.tensor_names(collection="gradients")) == 4 and trial.tensor_names(collection="losses")


def torch_scripts_of_other_kinds():
    kinds = "function", "gan", "own"
    # Together: most of each is the import of torch.
    function, gan, own = [_start_torch(kind, save_interval="2") for kind in kinds]
    trial, _ = _ended_torch(function)
    assert trial.tensor_names() == ["Loss_output_0"] and trial.steps() == [0, 2, 4]
    trial, _ = _ended_torch(gan)
    assert trial.steps() == [0, 2, 4]
    assert trial.tensor_names(collection="weights") == ["Critic_fc.weight", "Net_fc1.weight", "Net_fc2.weight"]
    trial, text = _ended_torch(own)
    # The script's hook has steps of its own, and none was made besides it.
    assert text.count("Saving to") == 1 and trial.steps() == [0, 1, 2, 3, 4, 5], text


def torch_ranks():
    port = str(20000 + os.getpid() % 20000)
    at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    processes, out = [], tempfile.mkdtemp() + "/tensors"
    for rank in range(2):
        folder = Path(tempfile.mkdtemp(), "debughookconfig.json")
        folder.write_text(
            json.dumps({"LocalPath": out, "HookParameters": {"save_interval": "2", "include_workers": "all"}})
        )
        more = at | {"RANK": str(rank), "SMDEBUG_CONFIG_FILE_PATH": str(folder)}
        processes.append(start("debugger_script_torch.py", "ddp", config=False, **more)[0])
    texts = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    trial = create_trial(out)
    assert trial.workers() == ["worker_0", "worker_1"] and trial.steps() == [0, 2, 4], texts
    assert trial.tensor("CrossEntropyLoss_output_0").workers(2) == ["worker_0", "worker_1"]


def nothing_without_a_configuration():
    script = "debugger_script_torch.py"
    without, switched_off, bad = (
        start(script, "modules", config=False),
        start(script, "modules", USE_SMDEBUG="0"),
        start(script, "plain", parameters={"save_interval": "often"}),
    )
    for started in (without, switched_off):
        assert "smdebug=False" in ended(*started)[1]
    out, text = ended(*bad)
    assert text.count("Debugger's hook is off, the training continues") == 1 and not Path(out).exists(), text


def sklearn_script():
    _, text = ran("debugger_script_sklearn.py")
    assert "estimators of scikit-learn" in text and "fitted without steps" in text, text


def xgboost_script():
    names = "metrics", "hyperparameters", "feature_importance", "predictions", "labels", "trees", "average_shap"
    collections = [(name, None) for name in names]
    out, text = ran("debugger_script_xgboost.py", "train", collections=collections, parameters={"save_interval": "5"})
    trial = create_trial(out)
    assert trial.steps() == [0, 5, 10], text
    assert trial.tensor_names(collection="metrics") == [
        f"{data}-{metric}" for data in ("train", "validation") for metric in ("auc", "logloss")
    ]
    assert trial.tensor("validation-logloss").value(10) < trial.tensor("validation-logloss").value(0)
    assert trial.tensor("hyperparameters/max_depth").value(0) == 2
    gains = [trial.tensor(name).value(5) for name in trial.tensor_names(step=5, regex="^feature_importance/gain/")]
    np.testing.assert_allclose(sum(gains), 1)
    assert trial.tensor("predictions").value(5).shape == trial.tensor("labels").value(5).shape == (50,)
    assert set(trial.tensor("trees/Tree").value(5)) == {5} and "Leaf" in trial.tensor("trees/Feature").value(5)
    assert trial.tensor_names(regex="average_shap") == ["average_shap/f0", "average_shap/f1", "average_shap/f2"]
    out, _ = ran("debugger_script_xgboost.py", "estimator")
    # Each 10 rounds, and what an estimator calls its data.
    assert create_trial(out).tensor("validation_0-logloss").steps() == [0, 10]


def keras_script():
    collections = [("losses", None), ("weights", None), ("gradients", None), ("biases", {"reductions": "mean"})]
    out, text = ran(
        "debugger_script_keras.py",
        "tensorflow",
        collections=[*collections, ("inputs", None)],
        parameters={"save_interval": "5"},
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    trial = create_trial(out)
    assert trial.steps(mode=modes.TRAIN) == [0, 5, 10, 15] and trial.steps(mode=modes.EVAL) == [0], text
    assert trial.tensor_names(collection="weights") == ["d1/weights/d1/kernel:0", "d2/weights/d2/kernel:0"]
    assert trial.tensor("d1/weights/d1/bias:0").reduction_value(5, "mean", mode=modes.TRAIN).shape == ()
    gradients = trial.tensor_names(collection="gradients")
    assert gradients == [f"gradients/{layer}/{kind}Grad" for layer in ("d1", "d2") for kind in ("bias", "kernel")]
    assert any(np.abs(trial.tensor(name).value(5, mode=modes.TRAIN)).max() > 0 for name in gradients)
    assert {"loss", "accuracy", "scalar/val_loss"} <= set(trial.tensor_names())
    assert "inputs: inputs and outputs of layers are within Keras's compiled step" in text
    # Keras imports it; nothing of it was trained.
    assert "scikit-learn" not in text, text


def keras_tape():
    import smdebug.tensorflow as smd
    import tensorflow as tf

    hook = smd.KerasHook(
        tempfile.mkdtemp(), save_config=smd.SaveConfig(save_interval=2), include_collections=["gradients"]
    )
    weight = tf.Variable([1.0, 2.0], name="weight")
    for _ in range(3):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(weight**2)
        (gradient,) = tape.gradient(loss, [weight])
        weight.assign_sub(0.1 * gradient)
    hook.close()
    trial = smd.create_trial(hook.out_dir)
    assert trial.tensor("loss").steps() == [0, 2] and trial.tensor("loss").value(0) == 5
    np.testing.assert_allclose(trial.tensor("gradients/variable/weightGrad").value(0), [2, 4])
    smd.del_hook()
