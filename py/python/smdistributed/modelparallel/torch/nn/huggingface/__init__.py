"""Models of Hugging Face's transformers in the form of `smp.nn`."""

from smdistributed.modelparallel.torch.nn.huggingface import gpt2

__all__ = ["gpt2"]
