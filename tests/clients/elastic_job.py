"""An instance of a job whose ranks leave and join: runs one rank of elastic_ranks.py as a child.

The last instance's rank is killed, then the second one's hangs. Each is replaced by a new
process once the others have formed a group without it, which the first instance reports by
closing a connection.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import elastic_ranks

HOSTS = sorted(json.loads(os.environ["SM_HOSTS"]))
ME = HOSTS.index(os.environ["SM_CURRENT_HOST"])
REPORT = (HOSTS[0], 7078)
# Of rank 0's instance: training waits for it in the middle.
CHANGES_ARE_DONE = pathlib.Path("/tmp/changes-are-done")


def rank(**more):
    place = {
        "MASTER_ADDR": HOSTS[0],
        "MASTER_PORT": "7077",
        "RANK": str(ME),
        "WORLD_SIZE": str(len(HOSTS)),
        "SHOAL_COMM_HEARTBEAT": "3",
    }
    command = [sys.executable, elastic_ranks.__file__, "0.02", str(CHANGES_ARE_DONE)]
    return subprocess.Popen(command, env={**os.environ, **place, **more}, stdout=subprocess.PIPE, text=True)


def sizes(process):
    """Sizes of the worlds that the rank has been in, one by one, then what it prints at its end."""
    for line in process.stdout:
        printed = json.loads(line)
        if "here" in printed:
            print(f"rank {printed['here']} of {printed['of']} is on {HOSTS[ME]}", flush=True)
            yield printed["of"]
        elif "weights" in printed:
            yield printed


def wait_for_the_smaller_group():
    with socket.create_connection(REPORT) as connection:
        connection.recv(1)


def main():
    report = socket.create_server(REPORT) if ME == 0 else None
    process, worlds, last = rank(), [], None
    for printed in sizes(process):
        if isinstance(printed, dict):
            last = printed
            break
        worlds.append(printed)
        if ME == 0 and printed == 2:
            report.accept()[0].close()
        if ME == 2 and worlds == [3]:
            process.send_signal(signal.SIGKILL)
            break
        # The one that was killed has been replaced.
        if ME == 1 and worlds == [3, 2, 3]:
            process.send_signal(signal.SIGSTOP)
            break
        if ME == 0 and worlds == [3, 2, 3, 2, 3]:
            CHANGES_ARE_DONE.touch()
    if last is None:
        wait_for_the_smaller_group()
        replacement = rank(SHOAL_COMM_JOINS="1")
        *_, last = sizes(replacement)
        assert replacement.wait() == 0
        process.kill()
        process.wait()
    else:
        assert process.wait() == 0
        assert worlds == [3, 2, 3, 2, 3], worlds
    expected = elastic_ranks.alone()
    most = max(
        abs(a - b) for mine, its in zip(last["weights"], expected, strict=True) for a, b in zip(mine, its, strict=True)
    )
    assert last["once"] and set(last["sizes"]) == {2, 3} and most < 1e-5, (last, most)
    print(
        f"each sample was read once per epoch; weights differ by less than {1e-5} from those of one process", flush=True
    )


main()
