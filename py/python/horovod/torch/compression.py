"""Compression of gradients on the wire."""

import torch


class Compressor:
    """Compresses a tensor before it is sent, and decompresses the result."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """The tensor to send, and a context for `decompress`."""
        raise NotImplementedError(
            f"a compressor has compress(tensor); use {Compression.__name__}.none or {Compression.__name__}.fp16"
        )

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """The tensor in its original type."""
        raise NotImplementedError(
            f"a compressor has decompress(tensor, ctx); use {Compression.__name__}.none or {Compression.__name__}.fp16"
        )


class NoneCompressor(Compressor):
    """The tensor as it is."""

    @staticmethod
    def compress(tensor):
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        """The tensor itself."""
        return tensor


class FP16Compressor(Compressor):
    """Floats as float16: 11 bits of precision, at most 65504. Other types stay."""

    @staticmethod
    def compress(tensor):
        """The tensor as float16, and its original type."""
        return (tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        """The tensor in its original type."""
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    """The values of `compression=`."""

    none = NoneCompressor
    fp16 = FP16Compressor
