"""The peer of `cargo xtask bench comm`: torch.distributed with Gloo over loopback. Prints a row for
each case.

    bench_gloo.py RANKS SECONDS OPERATION:BYTES ...

A row is OPERATION,RANKS,BYTES,ITERATIONS,LEAST,MEDIAN,P90 in microseconds, of the slowest rank
each. The source is written anew before each iteration, and all ranks meet in shared memory.
"""

import mmap
import os
import sys
import tempfile
import time

MOST = 20_000
LINE = 16


def main(ranks, seconds, *cases):
    ranks, seconds = int(ranks), float(seconds)
    # Shared with the children: a line of 8-byte words for each rank's turn, one to stop, then each
    # rank's times.
    words = memoryview(mmap.mmap(-1, 8 * (LINE * (ranks + 1) + ranks * MOST))).cast("q")
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run(rank, ranks, seconds, cases, words, directory)
                    code = 0
                except BaseException as error:
                    print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
                finally:
                    os._exit(code)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def run(rank, ranks, seconds, cases, words, directory):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=ranks)
    turn, stop, first = 0, LINE * ranks, LINE * (ranks + 1)

    def meet():
        nonlocal turn
        turn += 1
        words[LINE * rank] = turn
        for other in range(ranks):
            looks = 0
            while words[LINE * other] < turn:
                looks += 1
                if looks > 50:
                    time.sleep(0 if looks < 2000 else 0.0002)

    for case in cases:
        operation, size = case.split(":")
        elements = int(size) // 4
        piece = elements // ranks
        send, recv = torch.zeros(elements), torch.zeros(elements)
        warm = 20 if elements <= 1 << 14 else 3
        done, started = 0, time.perf_counter()
        for iteration in range(MOST + warm):
            if iteration == warm:
                started = time.perf_counter()
            (recv if operation == "allreduce" else send).fill_(float(rank + 1))
            meet()
            begun = time.perf_counter()
            if operation == "allreduce":
                dist.all_reduce(recv)
            elif operation == "reduce_scatter":
                dist.reduce_scatter_tensor(recv[:piece], send[: piece * ranks])
            elif operation == "allgather":
                dist.all_gather_into_tensor(recv[: piece * ranks], send[:piece])
            elif operation == "bcast":
                dist.broadcast(send, 0)
            elif operation == "alltoall":
                dist.all_to_all_single(recv[: piece * ranks], send[: piece * ranks])
            else:
                raise ValueError(f"no operation {operation}")
            took = time.perf_counter() - begun
            if iteration >= warm:
                words[first + MOST * rank + done] = int(took * 1e9)
                done += 1
            if rank == 0:
                words[stop] = int(done >= 6 and time.perf_counter() - started > seconds)
            meet()
            over = words[stop]
            meet()
            if over:
                break
        total = ranks * (ranks + 1) / 2
        expected = {"allreduce": total, "reduce_scatter": total}.get(operation, 1.0)
        result = send if operation == "bcast" else recv if operation == "allreduce" else recv[:piece]
        if not bool((result == expected).all()):
            raise ValueError(f"{case}: a wrong result")
        if rank == 0:
            times = sorted(max(words[first + MOST * r + i] for r in range(ranks)) / 1e3 for i in range(done))
            least, median, p90 = times[0], times[done // 2], times[done * 9 // 10]
            print(f"{operation},{ranks},{size},{done},{least:.2f},{median:.2f},{p90:.2f}", flush=True)
        meet()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
