"""`shoal demo` leaves nothing, however it ends."""

import os
import pathlib
import signal
import subprocess

from house import SHOAL, eventually


def demo(place):
    """A demo that has finished training and stays up, and its directory."""
    before = set(place.iterdir())
    process = subprocess.Popen(
        [SHOAL, "demo", "--keep"], env={**os.environ, "TMPDIR": str(place)}, stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if "stays up" in line:
            break
    (directory,) = set(place.iterdir()) - before
    return process, directory


def test_a_demo_that_was_killed_is_swept_by_the_next(tmp_path):
    killed, left = demo(tmp_path)
    alive, other = demo(tmp_path)
    killed.kill()
    killed.wait()
    assert left.exists()
    third, own = demo(tmp_path)
    assert not left.exists() and other.exists() and own.exists(), "the dead one's is removed, a living one's is not"
    for process in (alive, third):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    eventually(lambda: not list(pathlib.Path(tmp_path).iterdir()))
