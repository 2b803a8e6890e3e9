"""Batch normalisation over the batches of all ranks."""

import torch
import torch.nn.functional as F
from torch.autograd.function import Function
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.torch.mpi_ops import Sum, allreduce_, size


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation whose mean and variance in training are those of all ranks' batches
    together. Tensors are (N, C, ...), on a processor or a GPU; the arguments are those of
    `torch.nn.BatchNorm2d`. In evaluation, or alone, it is that.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input):
        """The normalised batch."""
        self._check_input_dim(input)
        batch_statistics = self.training or (self.running_mean is None and self.running_var is None)
        tracks = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if tracks:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        running = (
            (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        )
        if not (batch_statistics and self.training) or size() == 1:
            return F.batch_norm(input, *running, self.weight, self.bias, batch_statistics, momentum, self.eps)
        return _SyncBatchNorm.apply(input, self.weight, self.bias, *running, self.eps, momentum)


def _by_channel(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


class _SyncBatchNorm(Function):
    """The normalisation, with statistics and gradients summed over all ranks."""

    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, eps, momentum):
        """The normalised batch; running statistics are updated in place."""
        wide = input.double() if input.dtype is torch.float64 else input.float()
        others = [it for it in range(input.dim()) if it != 1]
        channels, count = input.shape[1], input.numel() // input.shape[1]
        # Twice: a variance about the mean of all does not cancel as squares do.
        sums = torch.cat([wide.sum(others), wide.new_full((1,), count)])
        allreduce_(sums, op=Sum)
        total = sums[channels]
        mean = sums[:channels] / total
        centred = wide - _by_channel(mean, input)
        squares = centred.square().sum(others)
        allreduce_(squares, op=Sum)
        variance = squares / total
        scale = torch.rsqrt(variance + eps)
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            unbiased = squares / (total - 1).clamp(min=1)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        normal = centred * _by_channel(scale, input)
        ctx.save_for_backward(normal, weight, scale, total)
        ctx.has_bias = bias is not None
        if weight is not None:
            normal = normal * _by_channel(weight, input)
        if bias is not None:
            normal = normal + _by_channel(bias, input)
        return normal.to(input.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        """Gradients: that of the input over all ranks' batches, those of weight and bias this
        rank's share.
        """
        normal, weight, scale, total = ctx.saved_tensors
        grad = grad_output.to(normal.dtype)
        others = [it for it in range(grad.dim()) if it != 1]
        own_sum, own_dot = grad.sum(others), (grad * normal).sum(others)
        grad_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.stack([own_sum, own_dot])
            allreduce_(sums, op=Sum)
            mean_grad, mean_dot = (sums / total).unbind()
            factor = scale if weight is None else scale * weight
            inner = grad - _by_channel(mean_grad, grad) - normal * _by_channel(mean_dot, grad)
            grad_input = (inner * _by_channel(factor, grad)).to(grad_output.dtype)
        grad_weight = own_dot.to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        grad_bias = (
            own_sum.to(grad_output.dtype if weight is None else weight.dtype)
            if ctx.has_bias and ctx.needs_input_grad[2]
            else None
        )
        return grad_input, grad_weight, grad_bias, None, None, None, None
