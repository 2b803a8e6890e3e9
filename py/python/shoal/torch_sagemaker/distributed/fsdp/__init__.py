"""SageMaker's own module for FSDP, of which nothing is public: what scripts import from it is
told where PyTorch has it.
"""


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    use = (
        "torch.utils.checkpoint.checkpoint, or torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
        if name == "checkpoint"
        else "torch.distributed.fsdp"
    )
    raise ImportError(f"torch.sagemaker.distributed.fsdp has no {name} here: use {use}")
