"""One rank of the tests of `horovod.torch`: joins the world, then does checks."""

import rank_checks
import torch

import horovod.torch as hvd

if __name__ == "__main__":
    torch.set_num_threads(1)
    hvd.init()
    rank_checks.serve(hvd.rank(), hvd.size(), before=lambda: torch.manual_seed(0))
    hvd.shutdown()
