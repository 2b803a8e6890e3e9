"""Shoal for Python programs: `shoal.tuner`, `shoal.parallel` (plans of distributed training),
`shoal.torch` (a backend of `torch.distributed`).
"""
