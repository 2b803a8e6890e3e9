"""The names by which torch finds these process groups: it calls `register` when it is imported
(its entry points `torch.backends`).
"""

import os

from shoal import torch_sagemaker_finder

#: `smddp` is what scripts for SageMaker's own library ask for.
NAMES = ("shoal", "smddp")


def register() -> None:
    """Makes `init_process_group("shoal")`, `init_process_group("smddp")` and
    `import torch.sagemaker` work; a torch that was built without torch.distributed stays as it
    is.
    """
    # Not above: torch, when it is imported first by this, asks this module for `register`.
    import torch.distributed as dist

    if not dist.is_available():
        return
    torch_sagemaker_finder.install()
    for name in NAMES:
        if not hasattr(dist.Backend, name.upper()):
            dist.Backend.register_backend(name, _create, extended_api=True, devices=["cpu"])
    names = "SHOAL_SIMULATE_INSTANCES", "SM_HP_SHOAL_SIMULATE_INSTANCES"
    if any(os.environ.get(name) for name in names) or '"shoal_simulate_instances"' in os.environ.get("SM_HPS", ""):
        from shoal.torch import simulate

        simulate.install()


def _create(options, of_backend):
    # Not before it is asked for: most programs that import torch do not.
    from shoal.torch.backend import create

    return create(options, of_backend)
