"""Checkpoints that all ranks write and read together, in the format of
torch.distributed.checkpoint.
"""
