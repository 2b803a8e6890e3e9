"""TensorBoard's own reader finds what `smdebug` has written."""

import sys

import numpy as np
from smdebug import modes
from smdebug.core.writer import FileWriter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = sys.argv[1]
for step in (0, 500, 1000):
    with FileWriter(folder, "1_host", step, "tensorboard", modes.TRAIN) as writer:
        writer.write_scalar_summary("CrossEntropyLoss_output_0", 1 / (1 + step), step)
        writer.write_histogram_summary(np.linspace(-1, 1, 1000) * (step + 1), "weights/Net_fc1.weight", step)
found = EventAccumulator(f"{folder}/TRAIN", size_guidance={"scalars": 0, "histograms": 0}).Reload()
scalars = [(one.step, one.value) for one in found.Scalars("CrossEntropyLoss_output_0")]
np.testing.assert_allclose(scalars, [(step, 1 / (1 + step)) for step in (0, 500, 1000)], rtol=1e-6)
(first, *_, last) = found.Histograms("weights/Net_fc1.weight")
assert first.step == 0 and last.step == 1000
histogram = last.histogram_value
assert (histogram.min, histogram.max, histogram.num) == (-1001, 1001, 1000)
assert sum(histogram.bucket) == 1000 and len(histogram.bucket) == len(histogram.bucket_limit)
