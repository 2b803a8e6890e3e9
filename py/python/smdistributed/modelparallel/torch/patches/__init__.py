"""Functions in place of torch's."""

from smdistributed.modelparallel.torch.patches import checkpoint

__all__ = ["checkpoint"]
