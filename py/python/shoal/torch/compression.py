"""What compressed reductions of gradients remember."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from shoal.comm import CommError, Compressor, ConfigError, Group, Operation
from shoal.torch.backend import of


@dataclass
class _Plan:
    """How one bucket is reduced: ranges of elements with a compressor each, and ranges that go
    as they are.
    """

    compressors: list[tuple[int, int, Compressor]] = field(default_factory=list)
    plain: list[tuple[int, int]] = field(default_factory=list)


class Compression:
    """The state of the hook `compressed`. Buckets are reduced one after the other by a thread
    beside, in a group of the same ranks, while the backward pass goes on.

    The first `plain_steps` steps go uncompressed: DistributedDataParallel makes its buckets anew
    after the first one. Buckets of other types than float32 always do.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, plain_steps: int = 1):
        if plain_steps < 0:
            raise ConfigError(f"plain_steps is {plain_steps}; give 0 or more")
        self.group = dist.group.WORLD if group is None else group
        self._backend = of(self.group)
        self._plain_steps = plain_steps
        self._steps = 0
        self._plans: dict[tuple[int, ...], _Plan] = {}
        #: Bytes that this rank had to give to others so far, however they travel.
        self.wire_bytes = 0
        #: The same without compression.
        self.plain_bytes = 0
        #: L2 norms of the last bucket's input (with what earlier steps had left out), and of what
        #: of it was not passed on.
        self.input, self.lost = 0.0, 0.0

    def compressor(self, shape: torch.Size) -> Compressor | None:
        """One for a parameter of this shape (a whole bucket if `whole_buckets`); none for a
        parameter that goes as it is.
        """
        raise NotImplementedError

    #: Whether a bucket has one compressor, and not one for each parameter.
    whole_buckets = True

    def begins(self, bucket: dist.GradBucket) -> bool:
        """Whether this bucket is to be compressed; counts steps."""
        begins = self._steps >= self._plain_steps
        if bucket.is_last():
            self._steps += 1
        return begins

    def add_plain(self, buffer: torch.Tensor) -> None:
        """Counts a bucket that goes as it is."""
        bytes_ = self._all_reduce_bytes(buffer.numel() * buffer.element_size())
        self.wire_bytes += bytes_
        self.plain_bytes += bytes_

    def _all_reduce_bytes(self, whole: int) -> int:
        size = self._backend.native.size
        return 2 * (size - 1) * whole // size

    def _plan(self, bucket: dist.GradBucket) -> _Plan:
        parameters = bucket.parameters()
        # What was left out belongs to parameters in this order: other ones begin anew.
        key = (bucket.index(), *(it.data_ptr() for it in parameters))
        if key not in self._plans:
            plan = _Plan()
            shapes = [bucket.buffer().shape] if self.whole_buckets else [it.shape for it in parameters]
            at = 0
            for shape in shapes:
                compressor = self.compressor(shape)
                if compressor is None:
                    plan.plain.append((at, shape.numel()))
                else:
                    plan.compressors.append((at, shape.numel(), compressor))
                at += shape.numel()
            self._plans[key] = plan
        return self._plans[key]

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begins a bucket."""
        group, thread = self._backend.beside()
        buffer, plan = bucket.buffer(), self._plan(bucket)
        told: torch.futures.Future = torch.futures.Future()

        def reduce() -> None:
            try:
                self._reduce(group, buffer, plan)
                told.set_result(None)
            except Exception as error:
                told.set_result(error)

        def value(told: torch.futures.Future) -> torch.Tensor:
            error = told.value()
            if error is not None:
                if isinstance(error, CommError):
                    self._backend.failure = self._backend.failure or error
                raise error
            return buffer

        # What a callback raises is an error for those who wait in C++, too; Future.set_exception is
        # one for Python only.
        future = told.then(value)
        thread.submit(reduce)
        return future

    @torch.no_grad()
    def _reduce(self, group: Group, buffer: torch.Tensor, plan: _Plan) -> None:
        for at, count, compressor in plan.compressors:
            wire, plain, self.input, self.lost = compressor.average(group, buffer[at : at + count].data_ptr(), count)
            self.wire_bytes += wire
            self.plain_bytes += plain
        if plan.plain:
            parts = [buffer[at : at + count] for at, count in plan.plain]
            together = torch.cat(parts)
            group.run(Operation("all_reduce", "f32", together.data_ptr(), together.data_ptr(), together.numel(), "avg"))
            for part, averages in zip(parts, together.split([count for _, count in plan.plain]), strict=True):
                part.copy_(averages)
            self.add_plain(together)


class Int8(Compression):
    """About a quarter of the bytes: 8-bit integers with a scale for each 256, rounded at random,
    so that the mean is the value. Another run with the same `seed` has the same bits. Nothing is
    remembered but the number of the step.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, seed: int = 0, plain_steps: int = 1):
        super().__init__(group, plain_steps)
        self._seed = seed

    def compressor(self, shape: torch.Size) -> Compressor:
        """One for a bucket."""
        # Other random numbers for each bucket.
        return Compressor.int8(self._seed + (len(self._plans) << 32))


class TopK(Compression):
    """Each rank sends the `share` of a bucket's elements that is greatest in magnitude, 8 bytes
    for each to each other rank; the rest is added to the next step's gradients (error feedback).
    """

    def __init__(self, share: float = 0.01, group: dist.ProcessGroup | None = None, plain_steps: int = 1):
        super().__init__(group, plain_steps)
        self._share = share
        Compressor.top_k(share)

    def compressor(self, shape: torch.Size) -> Compressor:
        """One for a bucket."""
        return Compressor.top_k(self._share)


class PowerSgd(Compression):
    """Each parameter of two and more dimensions goes as a product of matrices with `rank`
    columns, as rows by everything else; others, and those that would be no smaller, as they are.
    What the product misses is added to the next step's gradients (error feedback).
    """

    whole_buckets = False

    def __init__(self, rank: int = 2, group: dist.ProcessGroup | None = None, plain_steps: int = 1):
        super().__init__(group, plain_steps)
        self._rank = rank
        Compressor.power_sgd(rank, 1, 1)

    def compressor(self, shape: torch.Size) -> Compressor | None:
        """One for a parameter, if it is smaller so."""
        rows = shape[0] if len(shape) > 1 else 1
        columns = shape.numel() // max(rows, 1)
        if rows < 2 or self._rank * (rows + columns) >= shape.numel():
            return None
        return Compressor.power_sgd(self._rank, rows, columns)
