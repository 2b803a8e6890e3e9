"""One rank of the tests of `shoal.torch`: forms the group, then does checks."""

import os

import rank_checks
import torch
import torch.distributed as dist

import shoal.torch  # noqa: F401 (registers the backend)

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("SHOAL_TEST_BACKEND", "shoal"))
    rank_checks.serve(dist.get_rank(), dist.get_world_size(), before=lambda: torch.manual_seed(0))
    dist.destroy_process_group()
