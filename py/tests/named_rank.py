"""One rank of py/tests/test_named.py: does what its argument says with collectives by name, and
prints what it saw as lines of JSON. Needs nothing but the package.
"""

import array
import json
import os
import pathlib
import sys
import time

import shoal.named
from shoal.comm import CommError, PeerDied

DTYPES = {"f": "f32", "d": "f64", "i": "i32", "q": "i64", "B": "u8"}


def tensor(name: str, values: array.array, shape=None, recv: int | None = None) -> tuple:
    """In place, unless said."""
    at = values.buffer_info()[0]
    return (name, at, at if recv is None else recv, (len(values),) if shape is None else shape, DTYPES[values.typecode])


def floats(*values: float) -> array.array:
    return array.array("f", values)


def output(handle: shoal.named.NamedHandle, code: str = "f") -> list:
    memory, shape = handle.output(0)
    count = 1
    for it in shape:
        count *= it
    import ctypes

    raw = ctypes.string_at(memory.address, count * array.array(code).itemsize)
    return array.array(code, raw).tolist()


def say(**what) -> None:
    print(json.dumps(what), flush=True)


def failure(work) -> dict:
    try:
        work()
    except CommError as error:
        return {
            "kind": type(error).__name__,
            "text": str(error),
            "tensors": getattr(error, "tensors", None),
            "ranks": error.ranks,
        }
    return {}


def collectives(engine: shoal.named.NamedEngine) -> None:
    rank, size = engine.rank, engine.size
    x = floats(1.0 + rank, 2.0)
    engine.submit("allreduce", [tensor("x", x)], op="average", prescale=2.0, wait=True)
    say(average=x.tolist())
    # Many, in an order of each rank's own, twice.
    lengths = [1, 3, 1000, 40_000, 100_000] * 8
    many = [(i, array.array("f", [float(i % 5 + rank)]) * length) for i, length in enumerate(lengths)]
    for _ in range(2):
        many = many[rank * 7 :] + many[: rank * 7]
        for handle in [engine.submit("allreduce", [tensor(f"many.{i}", it)], op="max", keep=it) for i, it in many]:
            assert handle.wait()
    say(many=all(set(it) == {float(i % 5 + size - 1)} for i, it in many))
    group = [floats(1.0), array.array("d", [2.0]) * 5000, array.array("i", [3]), array.array("q", [-7])]
    tensors = [tensor(f"group.{i}", it) for i, it in enumerate(group)]
    engine.submit("allreduce", tensors, grouped=True, wait=True)
    say(group=[it[0] for it in group])
    own = floats(*[float(rank)] * (rank + 1))
    say(gathered=output(engine.submit("allgather", [tensor("g", own)], wait=True)))
    root = array.array("d", [float(rank)]) * 300
    engine.submit("broadcast", [tensor("b", root)], root=1, wait=True)
    say(sent=root[299])
    rows = floats(*[float(rank)] * (size * (size + 1) // 2))
    handle = engine.submit("alltoall", [tensor("a", rows)], splits=list(range(1, size + 1)), wait=True)
    say(exchanged=output(handle), received=handle.received_splits())
    rows = floats(*range(2 * size + 1))
    say(scattered=output(engine.submit("reducescatter", [tensor("r", rows, recv=0)], op="average", wait=True)))
    sums = floats(1.0, 1.0)
    if size == 2:
        engine.submit("allreduce", [tensor("ada", sums)], op="adasum", wait=True)
        say(adasum=sums.tolist())
    else:
        say(adasum=failure(lambda: engine.submit("allreduce", [tensor("ada", sums)], op="adasum")))
    engine.submit("barrier", [], wait=True)
    assert engine.submit("allreduce", [tensor("timed", x)]).wait(timeout=20)
    say(place=[engine.local_rank, engine.local_size, engine.cross_rank, engine.cross_size, engine.homogeneous])


def mistakes(engine: shoal.named.NamedEngine) -> None:
    rank = engine.rank
    x = floats(0.0, 0.0)
    say(shape=failure(lambda: engine.submit("allreduce", [tensor("s", x, (2,) if rank else (1, 2))], wait=True)))
    say(kind=failure(lambda: engine.submit("allreduce" if rank else "allgather", [tensor("k", x)], wait=True)))
    first = engine.submit("allreduce", [tensor("twice", x)])
    say(twice=failure(lambda: engine.submit("allreduce", [tensor("twice", floats(0.0, 0.0))])))
    first.wait()
    say(
        kinds=[
            failure(lambda kind=kind: engine.submit(kind, [tensor("none", x, ())]))["kind"]
            for kind in ("allgather", "frobnicate")
        ]
    )
    y = floats(1.0)
    engine.submit("allreduce", [tensor("fine", y)], wait=True)
    say(fine=y[0] == engine.size)


def others(engine: shoal.named.NamedEngine) -> None:
    rank, size = engine.rank, engine.size
    part = engine.add_set([size - 1, 0])
    x = floats(1.0)
    if rank in (0, size - 1):
        engine.submit("allreduce", [tensor("x", x)], set=part, wait=True)
    say(sets=sorted(engine.sets().items()), sum=x[0])
    engine.remove_set(part)
    seen = []

    def broken():
        raise KeyError(rank)

    names = ["e1", "e2", "e3"]
    names = names[rank % 3 :] + names[: rank % 3]
    handles = [engine.submit_external(name, "gpu", lambda name=name: seen.append(name)) for name in names]
    for handle in handles:
        handle.wait()
    say(seen=seen)
    try:
        engine.submit_external("broken", "", broken, wait=True)
    except KeyError as error:
        say(raised=error.args[0] == rank)
    for _ in range(rank + 1):
        x = floats(1.0)
        engine.submit("allreduce", [tensor("step", x)], wait=True)
        say(step=x[0])
    handle = engine.submit("join", [], wait=True)
    say(last=handle.last_joined())
    engine.timeline_start(sys.argv[2], True)
    engine.submit("allreduce", [tensor("traced", x)], wait=True)
    y = array.array("f", [1.0]) * 5000
    engine.submit("allreduce", [tensor("traced.large", y)], wait=True)
    # The file is whole all the time, so that a rank which hangs or is killed leaves one.
    end = time.monotonic() + 20
    while rank == 0:
        events = pathlib.Path(sys.argv[2]).read_text()
        if "traced.large" in events and json.loads(events):
            break
        assert time.monotonic() < end, f"events reach the file while it is written: {events[-200:]}"
        time.sleep(0.01)
    engine.timeline_stop()
    before = time.process_time()
    time.sleep(1)
    say(idle=time.process_time() - before)


def again(engine: shoal.named.NamedEngine) -> None:
    for _ in range(2):
        engine.shutdown()
        engine = shoal.named.start()
        x = floats(1.0)
        engine.submit("allreduce", [tensor("x", x)], wait=True)
        say(sum=x[0])
    if engine.rank == 1:
        os._exit(3)
    error = failure(lambda: engine.submit("allreduce", [tensor("lost", x)], wait=True))
    say(lost=error)
    say(later=failure(lambda: engine.submit("allreduce", [tensor("later", x)], wait=True))["kind"])
    assert issubclass(PeerDied, CommError)


def stalled(engine: shoal.named.NamedEngine) -> None:
    x = floats(1.0)
    if engine.rank == 1:
        time.sleep(2.5)
    engine.submit("allreduce", [tensor("late", x)], wait=True)
    say(sum=x[0])


if __name__ == "__main__":
    started = shoal.named.start()
    {"collectives": collectives, "mistakes": mistakes, "others": others, "again": again, "stalled": stalled}[
        sys.argv[1]
    ](started)
    started.shutdown()
