"""Every collective of `torch.distributed` as operations of a group."""

from collections.abc import Callable
from datetime import timedelta

import torch

from shoal.comm import CommError, ConfigError, Group, Operation
from shoal.torch import profile
from shoal.torch.sparse import Gathered
from shoal.torch.tensors import BITWISE, OPS, Flat, RedOp, for_copy, for_reduction, reduction
from shoal.torch.work import Work

Tensors = list[torch.Tensor]


def _only(items: list, what: str):
    if len(items) != 1:
        raise ConfigError(f"{what}: {len(items)} tensors where one is expected; backend shoal has one device per rank")
    return items[0]


class Collectives:
    """Collectives by the names and arguments that torch calls them with. Where an operation is
    not asynchronous it runs on the caller's thread.
    """

    _group: Group
    _timeout: timedelta
    #: What the first operation failed with, if one has.
    failure: CommError | None = None
    #: How many collectives were called.
    _collectives: int = 0

    # How operations run

    def _deadline(self, opts) -> float:
        timeout = getattr(opts, "timeout", None)
        return (timeout if timeout is not None and timeout > timedelta(0) else self._timeout).total_seconds()

    def _run(self, operation: Operation) -> None:
        try:
            self._group.run(operation)
        except CommError as error:
            if not isinstance(error, ConfigError):
                self.failure = self.failure or error
            raise

    def _do(
        self,
        opts,
        operation: Operation,
        outputs: Tensors,
        keep: object = None,
        after: Callable[[], None] | None = None,
    ) -> Work:
        operation = operation._replace(deadline=self._deadline(opts))
        self._collectives += 1
        if getattr(opts, "asyncOp", True):
            return self._start(operation, outputs, (outputs, keep), after)
        if profile.is_on():
            with profile.event(operation.kind, outputs):
                self._run(operation)
        else:
            self._run(operation)
        work = Work(outputs, None, self, after)
        work.wait()
        return work

    def _start(
        self, operation: Operation, outputs: Tensors, keep: object, after: Callable[[], None] | None = None
    ) -> Work:
        begun = profile.begin(operation.kind, outputs) if profile.is_on() else None
        work = Work(outputs, self._group.start(operation, keep), self, after, what=operation.kind)
        if begun is not None:
            work.profiled = profile.end(begun, work)
        return work

    # Reductions

    def allreduce(self, tensors: Tensors, opts=None) -> Work:
        """Every rank's tensors become the reduction of all ranks'."""
        op = reduction(opts.reduceOp) if opts is not None else RedOp.SUM
        if any(tensor.is_sparse for tensor in tensors):
            return self._sparse(_only(tensors, "all_reduce of sparse tensors"), op, opts)
        flat = Flat(tensors, filled=True)
        if op in BITWISE:
            return self._bitwise(op, flat, opts, tensors)
        name = self._op(op, opts, flat.memory if flat.is_copy else None, flat.tensors)
        dtype = for_reduction(flat.tensors[0])[0]
        count = sum(flat.counts(for_reduction))
        operation = Operation("all_reduce", dtype, flat.address, flat.address, count, name)
        return self._do(opts, operation, tensors, flat, flat.back)

    def allreduce_coalesced(self, tensors: Tensors, opts=None) -> Work:
        """The same."""
        return self.allreduce(tensors, opts)

    allreduce_sparse = allreduce

    def _sparse(self, tensor: torch.Tensor, op: RedOp, opts) -> Work:
        """Gathers every rank's indices and values and adds them here. How many there are is
        gathered before this returns, also if it is asynchronous.
        """
        if op not in (RedOp.SUM, RedOp.AVG):
            raise ConfigError(
                f"all_reduce: backend shoal has no reduction {op} of sparse tensors; sum or average them, or convert them with .to_dense()"
            )
        own = tensor.detach().coalesce()
        indices, values = own.indices().contiguous(), own.values().contiguous()
        mine, all_sizes = torch.tensor([indices.shape[1]]), torch.zeros(self._group.size, dtype=torch.int64)
        self._all_gather(Flat([all_sizes], filled=False), mine, [all_sizes], None).wait()
        gathered = Gathered(tensor, indices, values, all_sizes.tolist())
        first = self._all_gather(Flat(gathered.indices, filled=False), gathered.own_indices, [], opts)
        last = self._all_gather(Flat(gathered.values, filled=False), gathered.own_values, [], opts)
        work = Work([tensor], last._native, self, what="sparse_all_reduce")

        def add() -> None:
            first.wait()
            last.wait()
            gathered.add(self._group.size if op is RedOp.AVG or op == RedOp.AVG else 1)

        work._after = add
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def _op(self, op: RedOp, opts, memory: torch.Tensor | None, tensors: Tensors) -> str:
        """The reduction's name. One that multiplies first does so here."""
        if op is RedOp.PREMUL_SUM or op == RedOp.PREMUL_SUM:
            for tensor in tensors if memory is None else [memory]:
                tensor.mul_(opts.reduceOp.factor)
            return "sum"
        if op not in OPS:
            raise ConfigError(f"backend shoal has no reduction {op}")
        return OPS[op]

    def _bitwise(self, op: RedOp, flat: Flat, opts, tensors: Tensors) -> Work:
        """Bits are combined here, after a gather."""
        memory = torch.cat([tensor.reshape(-1) for tensor in flat.tensors])
        dtype, count = for_copy(memory)
        every = torch.empty(self._group.size * memory.numel(), dtype=memory.dtype)

        def combine() -> None:
            result, *others = every.view(self._group.size, -1)
            for other in others:
                result = BITWISE[op](result, other)
            at = 0
            for tensor in flat.tensors:
                tensor.copy_(result[at : at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()

        operation = Operation("all_gather", dtype, memory.data_ptr(), every.data_ptr(), count)
        return self._do(opts, operation, tensors, (memory, every), combine)

    def reduce(self, tensors: Tensors, opts) -> Work:
        """The root's tensor becomes the reduction of all; the others' stay as they are."""
        flat = Flat([_only(tensors, "reduce")], filled=True)
        op = reduction(opts.reduceOp)
        scaled = flat.memory
        if op == RedOp.PREMUL_SUM:
            scaled = flat.memory * opts.reduceOp.factor
        name = self._op(op, opts, torch.empty(0), [])
        dtype, count = for_reduction(scaled)
        send = scaled.data_ptr() if scaled is not flat.memory else flat.address
        operation = Operation("reduce", dtype, send, flat.address, count, name, opts.rootRank)
        after = flat.back if self._group.rank == opts.rootRank else None
        return self._do(opts, operation, tensors, (flat, scaled), after)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts=None) -> Work:
        """Rank r gets the reduction of all ranks' r-th tensors."""
        output, pieces = _only(outputs, "reduce_scatter"), _only(inputs, "reduce_scatter")
        return self._reduce_scatter(output, Flat(pieces, filled=True), opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts=None) -> Work:
        """Rank r gets the r-th piece of the reduction of all ranks' inputs."""
        return self._reduce_scatter(output, Flat([input], filled=True), opts)

    _reduce_scatter_base = reduce_scatter_tensor = reduce_scatter_single

    def _reduce_scatter(self, output: torch.Tensor, source: Flat, opts) -> Work:
        op = reduction(opts.reduceOp) if opts is not None else RedOp.SUM
        memory, address = source.memory, source.address
        if op == RedOp.PREMUL_SUM:
            memory = torch.cat([tensor.reshape(-1) for tensor in source.tensors]) * opts.reduceOp.factor
            address = memory.data_ptr()
        name = self._op(op, opts, torch.empty(0), [])
        target = Flat([output], filled=False)
        dtype, count = for_reduction(target.memory)
        given = sum(source.counts(for_reduction))
        counts = source.counts(for_reduction) if len(source.tensors) > 1 else [count] * self._group.size
        if sum(counts) != given or counts[self._group.rank] != count:
            raise ConfigError(
                f"reduce_scatter: {given} elements in, {count} out for rank {self._group.rank} of {self._group.size}; they do not fit"
            )
        counts = counts if len(set(counts)) > 1 else None
        operation = Operation("reduce_scatter", dtype, address, target.address, count, name, counts=counts)
        return self._do(opts, operation, [output], (source, memory, target), target.back)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts=None) -> Work:
        """Several reduce-scatters, one after the other."""
        return _last(
            [self.reduce_scatter_single(output, input, opts) for output, input in zip(outputs, inputs, strict=True)],
            outputs,
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Copies

    def broadcast(self, tensors: Tensors, opts) -> Work:
        """Every rank's tensor becomes the root's."""
        flat = Flat([_only(tensors, "broadcast")], filled=self._group.rank == opts.rootRank)
        dtype, count = for_copy(flat.memory)
        operation = Operation("broadcast", dtype, flat.address, flat.address, count, peer=opts.rootRank)
        return self._do(opts, operation, tensors, flat, flat.back)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts=None) -> Work:
        """Every rank gets every rank's tensor, in rank order."""
        pieces, own = _only(outputs, "all_gather"), _only(inputs, "all_gather")
        return self._all_gather(Flat(pieces, filled=False), own, pieces, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts=None) -> Work:
        """The same into one tensor."""
        return self._all_gather(Flat([output], filled=False), input, [output], opts)

    _allgather_base = all_gather_into_tensor = all_gather_single

    def _all_gather(self, target: Flat, own: torch.Tensor, outputs: Tensors, opts) -> Work:
        source = Flat([own], filled=True)
        dtype, count = for_copy(source.memory)
        gets = sum(target.counts(for_copy))
        counts = target.counts(for_copy) if len(target.tensors) > 1 else [count] * self._group.size
        if (
            sum(counts) != gets
            or len(counts) != self._group.size
            or counts[self._group.rank] != count
            or target.memory.dtype != source.memory.dtype
        ):
            what = f"{count} {source.memory.dtype} of rank {self._group.rank} of {self._group.size}, room for {gets} {target.memory.dtype}"
            raise ConfigError(f"all_gather: {what}; they do not fit")
        counts = counts if len(set(counts)) > 1 else None
        operation = Operation("all_gather", dtype, source.address, target.address, count, counts=counts)
        return self._do(opts, operation, outputs, (source, target), target.back)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts=None) -> Work:
        """Several all-gathers, one after the other; `outputs[r]` has rank r's tensors, as torch
        has it.
        """
        columns = [list(column) for column in zip(*outputs, strict=True)]
        works = [
            self._all_gather(Flat(pieces, filled=False), own, pieces, opts)
            for pieces, own in zip(columns, inputs, strict=True)
        ]
        return _last(works, [tensor for pieces in outputs for tensor in pieces])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts=None) -> Work:
        """Several all-gathers, one after the other."""
        return _last(
            [self.all_gather_single(output, input, opts) for output, input in zip(outputs, inputs, strict=True)],
            outputs,
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts) -> Work:
        """The root gets every rank's tensor, in rank order."""
        source = Flat([_only(inputs, "gather")], filled=True)
        dtype, count = for_copy(source.memory)
        if self._group.rank != opts.rootRank:
            operation = Operation("gather", dtype, source.address, 0, count, peer=opts.rootRank)
            return self._do(opts, operation, [], source)
        pieces = _only(outputs, "gather")
        target = Flat(pieces, filled=False)
        if target.counts(for_copy) != [count] * self._group.size:
            raise ConfigError(
                f"gather: {count} elements of each of {self._group.size} ranks, room for {target.counts(for_copy)}"
            )
        operation = Operation("gather", dtype, source.address, target.address, count, peer=opts.rootRank)
        return self._do(opts, operation, pieces, (source, target), target.back)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts) -> Work:
        """Rank r gets the root's r-th tensor."""
        output = _only(outputs, "scatter")
        target = Flat([output], filled=False)
        dtype, count = for_copy(target.memory)
        send, source = 0, None
        if self._group.rank == opts.rootRank:
            source = Flat(_only(inputs, "scatter"), filled=True)
            send = source.address
            if source.counts(for_copy) != [count] * self._group.size:
                raise ConfigError(
                    f"scatter: {source.counts(for_copy)} elements, room for {count} on each of {self._group.size} ranks"
                )
        operation = Operation("scatter", dtype, send, target.address, count, peer=opts.rootRank)
        return self._do(opts, operation, [output], (source, target), target.back)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts=None) -> Work:
        """Rank r gets every rank's r-th tensor."""
        source, target = Flat(inputs, filled=True), Flat(outputs, filled=False)
        counts = source.counts(for_copy) + target.counts(for_copy)
        return self._all_to_all(source, target, counts, outputs, opts)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, from_each: list[int], to_each: list[int], opts=None
    ) -> Work:
        """Rank r gets every rank's r-th piece. Sizes of pieces are counted in rows; equal where
        not given.
        """
        source, target = Flat([input], filled=True), Flat([output], filled=False)
        counts = self._pieces(source.memory, to_each, "input") + self._pieces(target.memory, from_each, "output")
        return self._all_to_all(source, target, counts, [output], opts)

    alltoall_base = all_to_all_single

    def _pieces(self, tensor: torch.Tensor, rows: list[int], what: str) -> list[int]:
        elements, size = for_copy(tensor)[1], self._group.size
        given = tensor.shape[0] if tensor.dim() else 1
        if not rows:
            if given % size:
                raise ConfigError(
                    f"all_to_all: {given} rows of {what} cannot be split among {size} ranks; give the sizes of the pieces"
                )
            return [elements // size] * size
        if len(rows) != size or sum(rows) != given:
            raise ConfigError(f"all_to_all: pieces of {rows} rows where {what} has {given} and there are {size} ranks")
        return [elements // max(given, 1) * count for count in rows]

    def _all_to_all(self, source: Flat, target: Flat, counts: list[int], outputs: Tensors, opts) -> Work:
        dtype = for_copy(source.memory)[0]
        operation = Operation("all_to_all", dtype, source.address, target.address, 0, counts=counts)
        if len(set(counts)) == 1:
            operation = operation._replace(len=counts[0], counts=None)
        return self._do(opts, operation, outputs, (source, target), target.back)

    # Messages and barriers

    def send(self, tensors: Tensors, to: int, tag: int) -> Work:
        """Gives a tensor to another rank."""
        flat = Flat([_only(tensors, "send")], filled=True)
        dtype, count = for_copy(flat.memory)
        operation = Operation("send", dtype, flat.address, 0, count, peer=to, tag=tag, deadline=self._deadline(None))
        return self._start(operation, tensors, flat)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Work:
        """Takes a tensor from another rank."""
        flat = Flat([_only(tensors, "recv")], filled=False)
        dtype, count = for_copy(flat.memory)
        operation = Operation(
            "recv", dtype, 0, flat.address, count, peer=source, tag=tag, deadline=self._deadline(None)
        )
        return self._start(operation, tensors, flat, flat.back)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """Takes a tensor from whichever rank sends one with that tag first; the work says which."""
        flat = Flat([_only(tensors, "recv")], filled=False)
        dtype, count = for_copy(flat.memory)
        operation = Operation("recv_any", dtype, 0, flat.address, count, tag=tag, deadline=self._deadline(None))
        return self._start(operation, tensors, flat, flat.back)

    def barrier(self, opts=None) -> Work:
        """Nobody goes on before all have come."""
        return self._do(opts, Operation("barrier"), [])


def _last(works: list[Work], outputs: Tensors) -> Work:
    """Works of one group that were begun in this order, as one."""
    if not works:
        return Work(outputs)
    last = works[-1]

    def rest() -> None:
        for work in works:
            work.wait()

    return Work(outputs, last._native, last._owner, rest, what=last._what)
