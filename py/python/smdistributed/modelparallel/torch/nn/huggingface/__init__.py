"""Models of Hugging Face's transformers in the form of `smp.nn`."""

#: What the modules of other models say when they are imported.
NOT_OFFERED = (
    "use nn.huggingface.gpt2, or smp.nn.DistributedTransformerLMHead with weights of your own, "
    "or leave the model whole and put its layers on partitions (smp.set_partition)"
)

from smdistributed.modelparallel.torch.nn.huggingface import gpt2  # noqa: E402 (after what the other modules import from here)

__all__ = ["gpt2"]
