"""Tensors as the memory of operations: addresses, element types, flat copies where memory is not
as an operation needs it.
"""

import torch
import torch.distributed as dist

from shoal.comm import ConfigError

#: Types that operations know.
DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}

RedOp = dist.ReduceOp.RedOpType
OPS = {RedOp.SUM: "sum", RedOp.AVG: "avg", RedOp.MIN: "min", RedOp.MAX: "max", RedOp.PRODUCT: "product"}
BITWISE = {RedOp.BAND: torch.bitwise_and, RedOp.BOR: torch.bitwise_or, RedOp.BXOR: torch.bitwise_xor}


def reduction(op) -> RedOp:
    """The kind of a reduction, of which torch has two forms."""
    return getattr(op, "op", op)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without autograd, as real numbers; refuses what is not memory of this
    process.
    """
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        what = f"a tensor on {tensor.device} of layout {tensor.layout}"
        raise ConfigError(f"{what}: backend shoal has dense CPU tensors only; move it with .cpu() or .to_dense()")
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def for_reduction(tensor: torch.Tensor) -> tuple[str, int]:
    """Type and number of the elements of contiguous memory that is to be reduced."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ConfigError(
            f"{tensor.dtype} cannot be reduced; convert it to one of {', '.join(str(it) for it in DTYPES)}"
        )
    return dtype, tensor.numel()


def for_copy(tensor: torch.Tensor) -> tuple[str, int]:
    """Type and number of the elements of contiguous memory that is to be copied: bytes where the
    type is not known.
    """
    dtype = DTYPES.get(tensor.dtype)
    return ("u8", tensor.numel() * tensor.element_size()) if dtype is None else (dtype, tensor.numel())


def adjacent(tensors: list[torch.Tensor]) -> bool:
    """Whether they lie one after the other in memory, each contiguous."""
    at = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or (tensor.numel() and tensor.data_ptr() != at):
            return False
        at += tensor.numel() * tensor.element_size()
    return True


def one_dtype(tensors: list[torch.Tensor], what: str) -> None:
    """Refuses lists of tensors of several types."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise ConfigError(
            f"{what}: the tensors are of several types, {sorted({str(it.dtype) for it in tensors})}; convert them to one"
        )


class Flat:
    """Tensors as one contiguous piece of memory: the memory itself where they lie that way, else
    a copy.
    """

    def __init__(self, tensors: list[torch.Tensor], *, filled: bool):
        self.tensors = [plain(tensor) for tensor in tensors]
        one_dtype(self.tensors, "a list of tensors")
        self.is_copy = not adjacent(self.tensors)
        if not self.is_copy:
            self.memory = self.tensors[0]
        elif filled:
            self.memory = torch.cat([tensor.reshape(-1) for tensor in self.tensors])
        else:
            total = sum(tensor.numel() for tensor in self.tensors)
            self.memory = torch.empty(total, dtype=self.tensors[0].dtype)

    @property
    def address(self) -> int:
        """Where it begins; 0 if it is empty."""
        if self.is_copy:
            return self.memory.data_ptr()
        return next((tensor.data_ptr() for tensor in self.tensors if tensor.numel()), 0)

    def counts(self, of) -> list[int]:
        """Elements of each tensor, by `for_copy` or `for_reduction`."""
        return [of(tensor)[1] for tensor in self.tensors]

    def back(self) -> None:
        """Copies the memory to the tensors, if it is a copy."""
        if self.is_copy:
            at = 0
            for tensor in self.tensors:
                tensor.copy_(self.memory[at : at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()
