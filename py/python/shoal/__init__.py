"""Shoal for Python programs. `shoal.tuner` is the hyperparameter search as a library, `shoal.torch` a backend of `torch.distributed`."""
