"""Not offered."""

raise ImportError(
    "smdistributed.modelparallel.torch.nn.huggingface.gptj is not offered: use nn.huggingface.gpt2, or smp.nn.DistributedTransformerLMHead with weights of your own, "
    "or leave the model whole and put its layers on partitions (smp.set_partition)"
)
