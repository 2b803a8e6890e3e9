"""Gradients in fewer bytes on the wire."""

import torch


class Compressor:
    """Makes a smaller tensor of a tensor, and the tensor of that again."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """The smaller tensor, and what `decompress` needs to know."""
        raise NotImplementedError(f"a compressor has compress(tensor); use {Compression.__name__}.none or {Compression.__name__}.fp16")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """The tensor again, as far as it was kept."""
        raise NotImplementedError(f"a compressor has decompress(tensor, ctx); use {Compression.__name__}.none or {Compression.__name__}.fp16")


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
        """As float16, and the type that it had."""
        return (tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        """In the type that it had."""
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    """What may be given as `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
