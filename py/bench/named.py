"""What collectives by name cost (shoal.named), on 2 ranks of one thread: one JSON line per case.
`python named.py` starts its ranks itself.

Cases: 4 bytes (median, microseconds), 25 M float32 in place, 1,000 tensors of 1,000 float32 as a
group, in a loop of asynchronous submissions by name and with names that are new each time, and what
a rank uses that waits for nothing.
"""

import argparse
import array
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import shoal.named


def times(work, rounds: int) -> dict[str, float]:
    for _ in range(max(rounds // 10, 2)):
        work()
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return {"median_ms": 1e3 * statistics.median(seconds), "best_ms": 1e3 * min(seconds)}


def ones(count: int) -> array.array:
    return array.array("f", [1.0]) * count


def rank_main() -> None:
    engine = shoal.named.start()

    def tensor(name: str, values: array.array) -> tuple:
        at = values.buffer_info()[0]
        return (name, at, at, (len(values),), "f32")

    def say(case: str, **figures: float) -> None:
        engine.submit("barrier", [], wait=True)
        if engine.rank == 0:
            print(json.dumps({"case": case, **{name: round(it, 4) for name, it in figures.items()}}), flush=True)

    one = ones(1)
    small = tensor("small", one)
    say("4 B, blocking", **times(lambda: engine.submit("allreduce", [small], wait=True), 3000))
    say("4 B, submitted, then waited for", **times(lambda: engine.submit("allreduce", [small]).wait(), 3000))
    large = ones(25_000_000)
    whole = tensor("large", large)
    say("25 M float32 in place, sum", **times(lambda: engine.submit("allreduce", [whole], wait=True), 10))
    say(
        "25 M float32 in place, average",
        **times(lambda: engine.submit("allreduce", [whole], op="average", wait=True), 10),
    )
    apart = ones(25_000_000)
    out = ("apart", large.buffer_info()[0], apart.buffer_info()[0], (len(large),), "f32")
    say(
        "25 M float32 out of place, average",
        **times(lambda: engine.submit("allreduce", [out], op="average", wait=True), 10),
    )
    many = [ones(1000) for _ in range(1000)]
    group = [tensor(f"group.{i}", it) for i, it in enumerate(many)]
    say(
        "1,000 x 1,000 float32, grouped",
        **times(lambda: engine.submit("allreduce", group, op="average", grouped=True, wait=True), 50),
    )
    loop = [[tensor(f"loop.{i}", it)] for i, it in enumerate(many)]

    def by_loop() -> None:
        for handle in [engine.submit("allreduce", it, op="average") for it in loop]:
            handle.wait()

    say("1,000 x 1,000 float32, asynchronous loop", **times(by_loop, 50))
    count = 0

    def by_new_names() -> None:
        nonlocal count
        handles = []
        for it in many:
            count += 1
            handles.append(engine.submit("allreduce", [tensor(f"allreduce.noname.{count}", it)], op="average"))
        for handle in handles:
            handle.wait()

    say("1,000 x 1,000 float32, asynchronous loop, new names", **times(by_new_names, 20))
    submits = time.perf_counter()
    handles = [engine.submit("allreduce", it, op="average") for it in loop]
    submits = time.perf_counter() - submits
    for handle in handles:
        handle.wait()
    say("of that, 1,000 submissions", median_ms=1e3 * submits)
    engine.submit("barrier", [], wait=True)
    before = time.process_time()
    time.sleep(3)
    say("a rank that waits for nothing", percent_of_a_core=100 * (time.process_time() - before) / 3)
    engine.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port = it.getsockname()[1]
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    started = [subprocess.Popen([sys.executable, __file__], env={**common, "RANK": str(rank)}) for rank in range(ranks)]
    sys.exit(max(rank.wait() for rank in started))


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main()
    else:
        main()
