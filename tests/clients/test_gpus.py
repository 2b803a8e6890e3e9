"""GPUs of instances, by stand-ins: device nodes of NVIDIA's names that read as zeros, in a /dev
that only the server and what it starts see.
"""

import os
import subprocess

import pytest
from house import House
from jobs import Jobs
from test_script_mode import create

# A /dev with what programs expect, two GPUs, and what those share.
DEVICES = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
for name in null zero full random urandom tty fuse ptmx fd stdin stdout stderr; do
    if [ -e /dev/$name ]; then cp -a /dev/$name "$1"; fi
done
for name in pts shm; do mkdir "$1/$name"; mount --rbind /dev/$name "$1/$name"; done
for name in nvidia0 nvidia1 nvidiactl nvidia-uvm; do mknod -m 666 "$1/$name" c 1 5; done
mount --move "$1" /dev
shift
exec "$@"
"""


class WithGpus(House):
    def start(self):
        place = self.root / "dev"
        place.mkdir(exist_ok=True)
        self.prefix = ["unshare", "--mount", "sh", "-c", DEVICES, "sh", str(place)]
        super().start()
        self.prefix = []


@pytest.fixture
def jobs():
    if os.getuid() != 0:
        pytest.skip("needs root")
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    house = WithGpus()
    yield Jobs(house)
    house.close()


LOOK = """
import glob, os
found = [name for name in sorted(glob.glob("/dev/nvidia*")) if open(name, "rb").read(2) == bytes(2)]
print(*(os.path.basename(name) for name in found), "CUDA sees", os.environ.get("CUDA_VISIBLE_DEVICES", "nothing"), "of", os.environ["SM_NUM_GPUS"])
"""


def test_each_instance_opens_its_own_gpus_and_no_others(jobs):
    name = create(jobs, {"train.py": LOOK}, instances=2, instance_type="ml.p3.2xlarge")
    jobs.completed(name)
    said = [jobs.lines(name, f"algo-{number}") for number in (1, 2)]
    assert sorted(said) == [[f"nvidia-uvm nvidia{gpu} nvidiactl CUDA sees 0 of 1"] for gpu in (0, 1)]
    name = create(jobs, {"train.py": LOOK})
    jobs.completed(name)
    assert jobs.lines(name) == ["CUDA sees nothing of 0"]


def test_more_gpus_than_there_are_are_refused(jobs):
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="needs 4 V100 GPUs and this machine has 2: choose"):
        create(jobs, {"train.py": LOOK}, instance_type="ml.p3.8xlarge")
