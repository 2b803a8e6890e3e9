"""`shoal top`: a frame for scripts, and the screen in a terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

from house import eventually
from jobs import Jobs


def test_a_frame_for_scripts(house, jobs):
    failed = jobs.command("echo 'out of luck' > /opt/ml/output/failure; exit 3")
    jobs.failed(failed)
    name = jobs.command("echo 'loss: 0.5'; exec sleep 60", metrics=[("loss", r"loss: (\S+)")])
    jobs.saying(name, "0.5")
    frame = eventually(lambda: (it := house.shoal("top", "--once").stdout) and "Training" in it and it)
    rows = {line.split()[0]: line for line in frame.splitlines() if line}
    assert "1 running" in rows["shoal"] and "1 x ml.t3.medium" in rows[name] and "\x1b" not in frame
    assert "Failed" in rows[failed] and "out of luck" in rows[failed]
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    assert "0 running" in house.shoal("top").stdout, "in a pipe it is one frame, too"


def test_the_screen_of_a_terminal(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.command("exec sleep 60")
    jobs.until(name, "Training")
    terminal, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(ours)
    process = subprocess.Popen(house.command("top", "--every", "0.1"), env=house.environment, stdin=ours, stdout=ours)
    try:
        seen = b""

        def sees(text):
            nonlocal seen
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
            return text in seen

        eventually(lambda: sees(name.encode()))
        os.write(terminal, b"s")
        eventually(lambda: sees(b"longest first"))
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        eventually(lambda: sees(b"0 running"))
        os.write(terminal, b"q")
        eventually(lambda: sees(b"\x1b[?1049l"))
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    assert termios.tcgetattr(ours) == before, "the terminal is as it was found"
    os.close(ours)
    os.close(terminal)
