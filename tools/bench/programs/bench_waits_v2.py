"""One client of `cargo xtask bench waits`: SDK v2. Prints when, by this machine's clock, the call
returned that waits for a job.

bench_waits_v2.py fit|fit-without-logs|logs|tuner JOB SECONDS
"""

import os
import sys
import tempfile
import time

os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"

import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.parameter import ContinuousParameter
from sagemaker.tuner import HyperparameterTuner

way, job, seconds = sys.argv[1:]
session = sagemaker.Session()
with tempfile.TemporaryDirectory() as source:
    with open(f"{source}/train.py", "w") as script:
        script.write(f"import time\nprint('loss: 0.5', flush=True)\ntime.sleep({seconds})\n")
    estimator = Estimator(
        image_uri="shoal/host",
        role="arn:aws:iam::123456789012:role/bench",
        instance_count=1,
        instance_type="ml.m5.large",
        entry_point="train.py",
        source_dir=source,
        output_path="s3://bench/out",
        sagemaker_session=session,
    )
    if way == "fit":
        estimator.fit(job_name=job)
    elif way == "fit-without-logs":
        estimator.fit(job_name=job, logs="None")
    elif way == "logs":
        estimator.fit(job_name=job, wait=False)
        estimator.logs()
    else:
        metrics = [{"Name": "loss", "Regex": r"loss: (\S+)"}]
        tuner = HyperparameterTuner(
            estimator,
            "loss",
            {"x": ContinuousParameter(0, 1)},
            metrics,
            objective_type="Minimize",
            max_jobs=1,
            max_parallel_jobs=1,
        )
        tuner.fit(job_name=job, wait=False)
        tuner.wait()
    print("returned", time.time())
