"""Sparse tensors of all ranks, added."""

import torch


class Gathered:
    """Room for every rank's indices and values, which differ in number."""

    def __init__(self, tensor: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, sizes: list[int]):
        self._tensor = tensor
        # By entries, so that ranks' pieces lie one behind the other.
        self.own_indices, self.own_values = indices.t().contiguous(), values
        self._indices = indices.new_empty(sum(sizes), indices.shape[0])
        self._values = values.new_empty(sum(sizes), *values.shape[1:])
        self.indices = list(self._indices.split(sizes))
        self.values = list(self._values.split(sizes))

    def add(self, divisor: int) -> None:
        """The tensor becomes the sum of all ranks', divided by a number."""
        total = torch.sparse_coo_tensor(self._indices.t(), self._values, self._tensor.shape).coalesce()
        self._tensor.copy_(total if divisor == 1 else total / divisor)
