"""Scripts that go wrong in every way: each ends in the right status with the right reason,
nothing of it stays, and a job beside it does not notice.
"""

import collections
import pathlib
import re

import pytest
import traces
from house import eventually
from jobs import GROUP, Jobs
from test_script_mode import create as create_any


def create(jobs, files, instance_type="ml.t3.medium", **options):
    """Small ones: several have to run at once."""
    return create_any(jobs, files, instance_type=instance_type, **options)


# A line and a value every 20 ms, until it is told to end; then its model says how many there were.
BESIDE = """
import pathlib, signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
count = 0
while not told:
    count += 1
    print(f"beat={count};", flush=True)
    time.sleep(0.02)
pathlib.Path("/opt/ml/model/beats").write_text(str(count))
"""


class Beside:
    """A job that must not notice anything."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.name = create(jobs, {"train.py": BESIDE}, metrics=[("beat", r"beat=(\d+);")])
        self.goes_on()
        self.traces = self._traces()

    def beats(self):
        """The number of its last line in the log; 0 while there is none."""
        prefix = {"logGroupName": GROUP, "logStreamNamePrefix": f"{self.name}/"}
        try:
            streams = self.jobs.logs_client.describe_log_streams(**prefix)["logStreams"]
        except self.jobs.logs_client.exceptions.ResourceNotFoundException:
            return 0
        for stream in streams:
            last = self.jobs.logs_client.get_log_events(
                logGroupName=GROUP, logStreamName=stream["logStreamName"], limit=1
            )
            for event in last["events"]:
                found = re.fullmatch(r"beat=(\d+);", event["message"])
                return int(found[1]) if found else 0
        return 0

    def goes_on(self):
        before = self.beats()
        eventually(lambda: self.beats() > before)

    def _traces(self):
        found = traces.of_jobs(self.jobs.house)
        return {what: collections.Counter(map(str, items)) for what, items in found.items()}

    def is_alone(self):
        """Waits until nothing of any other job is left."""
        eventually(lambda: self._traces() == self.traces)

    def end(self):
        jobs = self.jobs
        jobs.sagemaker.stop_training_job(TrainingJobName=self.name)
        assert jobs.wait(self.name)["TrainingJobStatus"] == "Stopped"
        count = int(jobs.artifact(self.name)["beats"])
        assert jobs.lines(self.name) == [f"beat={number};" for number in range(1, count + 1)]
        assert jobs.metrics(self.name) == {"beat": count}


@pytest.fixture(scope="module")
def jobs(make_house):
    return Jobs(make_house("--grace-s", "2"))


@pytest.fixture(scope="module")
def beside(jobs):
    beside = Beside(jobs)
    yield beside
    beside.end()


# Each of them would live for ever, hears no signal that can be ignored, and keeps the output open.
CHILDREN = """
import os, signal, sys, time
def stays():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
for how in range(3):
    if os.fork() == 0:
        if how > 0:
            os.setsid()
        if how > 1 and os.fork() > 0:
            os._exit(0)
        stays()
time.sleep(0.2)
print("parent ends", flush=True)
os._exit(CODE)
"""
JUNK = """
import os, sys
sys.stdout.buffer.write(bytes(range(256)) * 4096)
sys.stdout.buffer.write(b"\\xf0\\x9f" + b"\\0" * 100_000 + b"\\x1b[2J\\r\\n")
sys.stderr.buffer.write(os.urandom(1 << 20))
print("\\nthe end", flush=True)
"""
ENDS = {
    "raises": ("raise ValueError('no column price')", "ValueError: no column price"),
    "no model": ("import os; os.rmdir('/opt/ml/model')", None),
    "os._exit": ("import os; print('half a line', end='', flush=True); os._exit(7)", "ExitCode 7"),
    "children": (CHILDREN.replace("CODE", "0"), None),
    "children of a failure": (CHILDREN.replace("CODE", "3"), "ExitCode 3"),
    "junk": (JUNK, None),
    "a line of 10 MB": ("print('x' * 10_000_000); print('the end')", None),
    "too many processes": (
        "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(3600)\n",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    ),
}


@pytest.mark.parametrize("fault", ENDS)
def test_an_end(jobs, beside, fault):
    text, reason = ENDS[fault]
    name = create(jobs, {"train.py": text})
    if reason is None:
        jobs.completed(name)
    else:
        said = jobs.failed(name)
        assert said.startswith("AlgorithmError: ") and reason in said, said
    beside.is_alone()
    beside.goes_on()


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    "text",
    [
        "held = []\nwhile True: held.append(b'x' * (1 << 20))",
        # Files in memory count, too; and a child may be who is killed.
        "import os\nwith open('/tmp/large', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = [b\"x\" * (1 << 20) for _ in range(1000)]'])\nsys.exit(1)",
    ],
)
def test_more_memory_than_it_has(jobs, beside, text):
    reason = jobs.failed(create(jobs, {"train.py": text}, instance_type="ml.m4.xlarge"))
    assert reason.startswith("AlgorithmError: algo-1 ran out of memory (limit "), reason
    beside.is_alone()
    beside.goes_on()


@pytest.mark.parametrize("seconds, status", [(1, "MaxRuntimeExceeded"), (600, "Stopped")])
def test_no_signal_is_heard(jobs, beside, seconds, status):
    """By itself, by threads and by children: the grace passes, and all of it is killed."""
    name = create(
        jobs,
        {"train.py": CHILDREN.replace("os._exit(CODE)", "stays()")},
        StoppingCondition={"MaxRuntimeInSeconds": seconds},
    )
    jobs.saying(name, "parent ends")
    if seconds > 1:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    it = jobs.wait(name)
    assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", status)
    beside.is_alone()
    beside.goes_on()


LOGS = """
import os, sys, time
line = "x" * 99 + "\\n"
block = (line * 10_000).encode()
for number in range(MEGABYTES):
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.write(f"megabyte={number};\\n".encode())
print("the end")
"""


def peak(pid):
    """The most memory that a process has had so far, in MiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) >> 10


def test_a_flood_of_lines(jobs, beside):
    """The program waits for the server, the other job does not, and neither server nor agent
    gather what comes in their memory.
    """
    before = peak(jobs.house.pid)
    name = create(jobs, {"train.py": LOGS.replace("MEGABYTES", "20")}, metrics=[("megabyte", r"megabyte=(\d+);")])
    most = [0]

    def is_over():
        beside.goes_on()
        agents = [pid for pid, words in traces.processes(jobs.house).items() if words[1:2] == ["agent"]]
        most.extend(peak(pid) for pid in agents)
        return jobs.describe(name)["TrainingJobStatus"] == "Completed"

    eventually(is_over)
    (stream,) = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    (last,) = jobs.logs_client.get_log_events(logGroupName=GROUP, logStreamName=stream["logStreamName"], limit=1)[
        "events"
    ]
    assert last["message"] == "the end" and jobs.metrics(name) == {"megabyte": 19}
    assert max(most) < 64 and peak(jobs.house.pid) - before < 64, (max(most), before, peak(jobs.house.pid))
    beside.is_alone()


FILLS = """
import os, time
try:
    file = os.open("/opt/ml/FILE", os.O_CREAT | os.O_WRONLY)
    if "FILE".endswith("nameless"):
        os.unlink("/opt/ml/FILE")
    os.posix_fallocate(file, 0, 1500 << 20)
finally:
    print("filled", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("place", ["model/large", "code/large", "input/data/train/large", "model/nameless"])
def test_more_disk_than_it_asked_for(jobs, beside, place):
    """It would keep the machine's disk for as long as it runs: 1 GB was asked for."""
    jobs.put("disk/a.txt", "a channel")
    name = create(jobs, {"train.py": FILLS.replace("FILE", place)}, channels=[jobs.channel("train", "disk")])
    reason = jobs.failed(name)
    # How much it was is a matter of the moment when it was looked at.
    expected = r"AlgorithmError: algo-1 was killed by SIGKILL: it had written 1\.\d GiB to its volume, more than VolumeSizeInGB allows"
    assert re.match(expected, reason), (reason, jobs.logs(name))
    beside.is_alone()
    beside.goes_on()
