"""Looking after a running training job from outside: commands in its instances, and a shell."""

import os
import pty
import signal
import subprocess

import pytest
import traces
from house import eventually
from jobs import Jobs
from test_script_mode import create as create_any

KINDS = {
    "as we are": {},
    "ordinary user": {"ordinary": True},
    "plain processes": {"variables": {"SHOAL_ISOLATION": "processes"}},
}
WAITS = """
import os, pathlib, signal, time
def end(*_):
    pathlib.Path(os.environ["SM_MODEL_DIR"], "saved").write_text("in time")
    raise SystemExit
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def create(jobs, files, **options):
    """Small ones: several have to run at once."""
    return create_any(jobs, files, instance_type="ml.t3.medium", **options)


@pytest.fixture(scope="module", params=KINDS)
def jobs(request, make_house):
    return Jobs(make_house("--grace-s", "10", "--instances", "4", **KINDS[request.param]))


@pytest.fixture(scope="module")
def job(jobs):
    name = create(jobs, {"train.py": WAITS}, instances=2)
    for host in ("algo-1", "algo-2"):
        jobs.saying(name, "ready", host)
    yield name
    # Whoever visited has changed nothing of it.
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.artifact(name) == {"saved": b"in time"}
    assert jobs.lines(name) == ["ready"]
    traces.nothing_left(jobs.house)


def visit(jobs, *words, **options):
    return jobs.house.shoal("jobs", "exec", *words, check=False, timeout=120, **options)


def test_a_command_is_where_the_program_is(jobs, job):
    script = "id -u; pwd; echo $SM_CURRENT_HOST; echo no >&2; exit 7"
    for rank, host in enumerate(["algo-1", "algo-2"]):
        done = visit(jobs, job, "--rank", str(rank), "--", "/bin/sh", "-c", script)
        user, directory, name = done.stdout.split()
        assert (name, done.stderr, done.returncode) == (host, "no\n", 7)
        if "SHOAL_ISOLATION" not in jobs.house.variables:
            assert user != "0" and directory == "/opt/ml/code"
            seen = visit(
                jobs,
                job,
                "--rank",
                str(rank),
                "--",
                "/bin/sh",
                "-c",
                "hostname; ls /opt/ml/code; readlink /proc/self/ns/pid /proc/[0-9]*/ns/pid",
            )
            assert seen.stdout.split()[:2] == [host, "train.py"]
            # One namespace, in which it sees the program and not the machine.
            assert len(set(seen.stdout.split()[2:])) == 1 and len(seen.stdout.split()) > 4


def test_what_is_no_program_holds_nobody_up(jobs, job):
    """The instance's first process must not wait for somebody to write into a pipe."""
    path = visit(
        jobs, job, "--", "/bin/sh", "-c", "path=$(mktemp -u) && mkfifo -m 755 $path && echo $path"
    ).stdout.strip()
    done = visit(jobs, job, "--", path)
    assert done.returncode == 126 and f"{path} may not be executed" in done.stderr
    assert visit(jobs, job, "--", "rm", path).returncode == 0


def test_bytes_go_both_ways(jobs, job):
    sent = os.urandom(3_000_000)
    done = visit(jobs, job, "--", "cat", text=False, input=sent)
    assert done.stdout == sent and (done.returncode, done.stderr) == (0, b"")
    # One that does not read, and one whose output nobody reads to its end.
    assert visit(jobs, job, "--", "/bin/sh", "-c", "exit 3", text=False, input=sent).returncode == 3
    head = subprocess.Popen(
        jobs.house.command("jobs", "exec", job, "--", "yes"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=jobs.house.environment,
    )
    assert head.stdout.read(4) == b"y\ny\n"
    head.stdout.close()
    assert head.wait(60) == 0


def test_how_a_command_ends_is_told(jobs, job):
    assert visit(jobs, job, "--", "/bin/sh", "-c", "kill -9 $$").returncode == 137
    done = visit(jobs, job, "--", "no-such-program")
    assert done.returncode == 127 and "no-such-program" in done.stderr
    # What it has left behind holds nobody up.
    assert visit(jobs, job, "--", "/bin/sh", "-c", "setsid sleep 300 & echo done").stdout == "done\n"


def test_a_command_goes_with_its_client(jobs, job):
    client = subprocess.Popen(
        jobs.house.command("jobs", "exec", job, "--", "sleep", "12345"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=jobs.house.environment,
    )
    running = lambda: ["sleep", "12345"] in traces.processes(jobs.house).values()  # noqa: E731
    eventually(running)
    client.send_signal(signal.SIGKILL)
    client.wait()
    eventually(lambda: not running())


def test_a_shell_has_a_terminal(jobs, job):
    pid, terminal = pty.fork()
    if pid == 0:
        words = jobs.house.command("jobs", "exec", job, "--", "/bin/sh")
        os.execvpe(words[0], words, {**jobs.house.environment, "TERM": "vt100", "PS1": "$ "})
    said = b""

    def until(text):
        nonlocal said
        while text not in said:
            said += os.read(terminal, 4096)

    os.write(terminal, b"echo $TERM $((6 * 7)); test -t 0 && test -t 2 && echo a terminal\n")
    until(b"vt100 42")
    until(b"a terminal\r\n")
    os.write(terminal, b"sleep 1000; echo interrupted\n")
    eventually(lambda: ["sleep", "1000"] in traces.processes(jobs.house).values())
    # A key, not a signal to the client.
    os.write(terminal, b"\x03")
    os.write(terminal, b"exit 5\n")
    while True:
        try:
            said += os.read(terminal, 4096)
        except OSError:
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5, said


def test_who_cannot_be_visited(jobs, job):
    ended = create(jobs, {"train.py": "print('over')"})
    jobs.completed(ended)
    for words, said, code in [
        ([ended], "does not run: it is Completed", 1),
        (["no-such-job"], "there is no training job no-such-job", 5),
        ([job, "--rank", "2"], "has no rank 2: it has 2 instances, with ranks 0 to 1", 1),
    ]:
        done = visit(jobs, *words, "--", "true")
        assert done.returncode == code and said in done.stderr, done
    log = jobs.house.log.read_text()
    assert f'the owner runs ["cat"] on algo-1 of training job {job}' in log and "Exited(7)" in log


def test_the_end_of_the_job_ends_a_visit(jobs):
    until_told = "import os, pathlib, time\nwhile not pathlib.Path(os.environ['SM_MODEL_DIR'], 'end').exists(): time.sleep(0.05)\n"
    name = create(jobs, {"train.py": "print('ready', flush=True)\n" + until_told})
    jobs.saying(name, "ready")
    done = visit(jobs, name, "--", "/bin/sh", "-c", "touch $SM_MODEL_DIR/end; exec sleep 1000")
    assert done.returncode == 1 and "the training program has ended" in done.stderr, done
    jobs.completed(name)


HANGS = """
import os, subprocess, threading, time
def holds():
    lock.acquire()
def waits_for_ever():
    lock.acquire()
lock = threading.Lock()
holds()
subprocess.Popen(["sleep", "54321"])
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    threading.Thread(target=waits_for_ever, name="the waiter").start()
    print("ready", flush=True)
    time.sleep(1000)
print("ready", flush=True)
waits_for_ever()
"""


def test_stacks_tell_where_a_program_hangs(jobs):
    name = create(jobs, {"train.py": HANGS}, instances=2)
    for host in ("algo-1", "algo-2"):
        jobs.saying(name, "ready", host)

    def stacks(*words):
        done = jobs.house.shoal("jobs", "stacks", name, *words, check=False, timeout=120)
        assert done.returncode == 0, done
        return done.stdout

    # A process may be seen before its program is in it.
    both = eventually(lambda: (said := stacks()).count("(sleep 54321)") == 2 and said)
    first, second = both.split("algo-2\n")
    assert (
        first.startswith("algo-1\n")
        and "python3 train.py" in first
        and "waits_for_ever" in first
        and "train.py:6)" in first
    ), both
    assert "the waiter: S (sleeping)" in second and "waits_for_ever" in second and "train.py:13)" in second, both
    # What is no Python shows what the kernel knows.
    assert "sleep: S (sleeping)" in first and "holds (" not in both
    assert stacks("--rank", "1").startswith("algo-2\n")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    done = jobs.house.shoal("jobs", "stacks", name, check=False)
    assert done.returncode == 1 and "does not run: it is Stopped" in done.stderr
