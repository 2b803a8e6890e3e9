"""Optimizers and learning rates for large batches.

    optimizer = LARS(layers(model), lr=3.2, weight_decay=1e-4)                     # or LAMB
    scheduler = Schedule(optimizer, times=8, warmup=500, decay=polynomial(9000, power=2))

The formulas and the rules are `shoal.parallel`'s: these compute on tensors what `lars_step`,
`lamb_step` and `Rate` say.
"""

from shoal.torch.optim.lamb import LAMB
from shoal.torch.optim.lars import LARS
from shoal.torch.optim.layers import layers
from shoal.torch.optim.schedule import Schedule, cosine, polynomial, steps

__all__ = ["LAMB", "LARS", "Schedule", "cosine", "layers", "polynomial", "steps"]
