"""Not offered."""

from smdistributed.modelparallel.torch.nn.huggingface import NOT_OFFERED

raise ImportError(f"{__name__} is not offered: {NOT_OFFERED}")
