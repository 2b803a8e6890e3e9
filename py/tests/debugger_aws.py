"""AWS's own smdebug reads what ours has written."""

import json
import sys

import numpy as np
from smdebug.core.tfevent import proto  # noqa: F401 (AWS's, not ours)
from smdebug.trials import create_trial

folder = sys.argv[1]
with open(f"{folder}/expected.json") as file:
    expected = json.load(file)
trial = create_trial(f"{folder}/run")
assert trial.tensor_names() == sorted(expected), set(trial.tensor_names()) ^ set(expected)
assert len(expected) > 15
for name, values in expected.items():
    tensor = trial.tensor(name)
    assert [str(step) for step in tensor.steps()] == list(values), name
    for step, value in values.items():
        np.testing.assert_allclose(tensor.value(int(step)), value, rtol=1e-6)
    if name.endswith("bias") and not name.startswith("gradient"):
        step = tensor.steps()[0]
        np.testing.assert_allclose(tensor.reduction_value(step, "mean"), np.mean(values[str(step)]), rtol=1e-5)
assert trial.collection("weights").tensor_names == {"Net_fc1.weight", "Net_fc2.weight"}
