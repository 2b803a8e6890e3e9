"""An instance of a job whose ranks leave and join: runs one rank of elastic_ranks.py as a child.

The last instance's rank is killed, then the second one's hangs; each is replaced by a new process."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import elastic_ranks

HOSTS = sorted(json.loads(os.environ["SM_HOSTS"]))
ME = HOSTS.index(os.environ["SM_CURRENT_HOST"])
# Of rank 0's instance: training waits for it in the middle.
CHANGES_ARE_DONE = pathlib.Path("/tmp/changes-are-done")


def rank(**more):
    place = {"MASTER_ADDR": HOSTS[0], "MASTER_PORT": "7077", "RANK": str(ME), "WORLD_SIZE": str(len(HOSTS)), "SHOAL_COMM_HEARTBEAT": "3"}
    command = [sys.executable, elastic_ranks.__file__, "0.02", str(CHANGES_ARE_DONE)]
    return subprocess.Popen(command, env={**os.environ, **place, **more}, stdout=subprocess.PIPE, text=True)


def sizes(process):
    """Sizes of the worlds that the rank has been in, as they come; at last what it says at its end."""
    for line in process.stdout:
        said = json.loads(line)
        if "here" in said:
            print(f"rank {said['here']} of {said['of']} is on {HOSTS[ME]}", flush=True)
            yield said["of"]
        elif "weights" in said:
            yield said


def main():
    process, worlds, last = rank(), [], None
    for said in sizes(process):
        if isinstance(said, dict):
            last = said
            break
        worlds.append(said)
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
        replacement = rank(SHOAL_COMM_JOINS="1")
        *_, last = sizes(replacement)
        assert replacement.wait() == 0
        process.kill()
        process.wait()
    else:
        assert process.wait() == 0
        assert worlds == [3, 2, 3, 2, 3], worlds
    expected = elastic_ranks.alone()
    most = max(abs(a - b) for mine, its in zip(last["weights"], expected, strict=True) for a, b in zip(mine, its, strict=True))
    assert last["once"] and set(last["sizes"]) == {2, 3} and most < 1e-5, (last, most)
    print(f"each sample was read once per epoch; weights differ by less than {1e-5} from those of one process", flush=True)


main()
