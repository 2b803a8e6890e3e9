"""One rank of the tests of `horovod.tensorflow`: joins the world, then does checks."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import rank_checks  # noqa: E402 (after the output of TensorFlow goes to standard error)

import horovod.tensorflow as hvd  # noqa: E402

hvd.init()
rank_checks.serve(answers=answers)
hvd.shutdown()
