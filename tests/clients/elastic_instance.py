"""One instance of a job that runs three ranks of elastic_ranks.py: one is killed, one hangs,
each is replaced, and the roster removes the oldest.

Replacements start when the others have formed a group without the lost rank. The roster calls
each rank a host of its own.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import elastic_ranks

HERE = pathlib.Path("/tmp/elastic")
CHANGES_ARE_DONE, ROSTER = HERE / "changes-are-done", HERE / "roster"


class Rank:
    def __init__(self, name, number=0, size=1, joins=False):
        variables = {
            "SHOAL_COMM_DIRECTORY": str(HERE / "meeting"),
            "SHOAL_COMM_HEARTBEAT": "3",
            "SHOAL_COMM_JOINS": str(int(joins)),
            "SHOAL_ELASTIC_HOST": name,
            "SHOAL_ELASTIC_ROSTER": str(ROSTER),
            "RANK": str(number),
            "WORLD_SIZE": str(size),
        }
        command = [sys.executable, elastic_ranks.__file__, "0.02", str(CHANGES_ARE_DONE)]
        self.process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)

    def until(self, key, value=None):
        """The next line that has the key, with this value if one is given."""
        for line in self.process.stdout:
            printed = json.loads(line)
            if key in printed and value in (None, printed[key]):
                return printed
        raise AssertionError(f"the rank ended before it printed {key} {value}")


def write_roster(*names):
    new = ROSTER.with_name("new")
    new.write_text("".join(f"{name}:1\n" for name in names))
    new.rename(ROSTER)


def main():
    HERE.mkdir()
    write_roster("one", "two", "three")
    one, two, three = (Rank(name, number, 3) for number, name in enumerate(["one", "two", "three"]))
    # So that some steps are of three ranks.
    for it in (one, two, three):
        it.until("step", 5)
    three.process.kill()
    two.until("of", 2)
    third = Rank("three", joins=True)
    two.until("of", 3)
    third.until("of", 3)
    one.process.send_signal(signal.SIGSTOP)
    two.until("of", 2)
    fourth = Rank("one", joins=True)
    fourth.until("of", 3)
    third.until("of", 3)
    begun = time.monotonic()
    write_roster("one", "three")
    assert two.until("dismissed") == {"dismissed": "two"}
    assert two.process.wait() == 0
    print(f"the rank that left the roster ended after {time.monotonic() - begun:.2f} s", flush=True)
    third.until("of", 2)
    CHANGES_ARE_DONE.touch()
    ends = [it.until("once") for it in (third, fourth)]
    assert [it.process.wait() for it in (third, fourth)] == [0, 0]
    one.process.kill()
    for it in (one, three):
        it.process.wait()
    expected = elastic_ranks.alone()
    for number, it in enumerate(ends):
        most = max(
            abs(a - b)
            for mine, its in zip(it["weights"], expected, strict=True)
            for a, b in zip(mine, its, strict=True)
        )
        assert it["once"] and (it["rank"], it["size"]) == (number, 2) and set(it["sizes"]) == {2, 3} and most < 1e-5, (
            it,
            most,
        )
    print("each sample was read once per epoch", flush=True)


main()
