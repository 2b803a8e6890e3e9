"""Agents that share nothing with the server but a TCP address: another network namespace, and a
mount namespace in which the server's directory is empty.
"""

import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import data
import pytest
import traces
from house import BUCKET, House, eventually
from jobs import Jobs
from test_input_modes import fast_files
from test_script_mode import create as create_script
from tuning_jobs import Tuning

NETNS = f"shoal{os.getpid()}"
SERVER, AGENTS = "10.213.7.1", "10.213.7.2"
LAUNCH = pathlib.Path(__file__).with_name("elsewhere.sh")


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def network():
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
        pytest.skip("needs root, ip and nsenter")
    server_end, agents_end = f"{NETNS[:11]}s"[-15:], f"{NETNS[:11]}a"[-15:]
    try:
        ip("netns", "add", NETNS)
        ip("link", "add", server_end, "type", "veth", "peer", "name", agents_end, "netns", NETNS)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs network namespaces and veth: {error.stderr}")
    try:
        ip("address", "add", f"{SERVER}/30", "dev", server_end)
        ip("link", "set", server_end, "up")
        ip("-n", NETNS, "address", "add", f"{AGENTS}/30", "dev", agents_end)
        ip("-n", NETNS, "link", "set", agents_end, "up")
        ip("-n", NETNS, "link", "set", "lo", "up")
        yield
    finally:
        ip("netns", "delete", NETNS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The other machine's own: it has the libraries, and nothing else."""
    cache = tmp_path_factory.mktemp("cache")
    for directory in pathlib.Path.home().glob(".cache/shoal/xgboost-*"):
        (cache / directory.name).symlink_to(directory)
    return cache


@pytest.fixture(scope="module")
def jobs(network, cache, tmp_path_factory):
    root = tmp_path_factory.mktemp("server")
    data_dir = root / "data"
    log = root / "launched"
    command = ",".join(map(str, [LAUNCH, NETNS, cache, log, root]))
    flags = ["--agents-listen", f"{SERVER}:0", "--launch-command", command]
    key = root / "team.key"
    key.write_text("0b" * 32)
    key.chmod(0o600)
    house = House(*flags, data=data_dir, settings=f'[kms.team]\nfile = "{key}"\n')
    house.launched = log
    yield Jobs(house)
    house.close()


def test_nothing_is_shared_but_an_address(jobs):
    # A program that is a plain command sees its instance; what its agent sees is what the command
    # that started it has arranged.
    jobs.put("remote/in/a.txt", "content")
    jobs.put("remote/in/sub/b.txt", "more")
    line = "cd $SM_CHANNEL_TRAIN; cat a.txt sub/b.txt; echo changed > a.txt; echo m > $SM_MODEL_DIR/m; echo o > $SM_OUTPUT_DATA_DIR/o"
    name = jobs.command(line, InputDataConfig=[jobs.channel("train", "remote/in/")])
    jobs.completed(name)
    assert jobs.lines(name) == ["contentmore"]
    assert (jobs.artifact(name), jobs.artifact(name, "output")) == ({"m": b"m\n"}, {"o": b"o\n"})
    assert jobs.s3.get_object(Bucket=BUCKET, Key="remote/in/a.txt")["Body"].read() == b"content"
    arguments = jobs.house.launched.read_text().splitlines()[-1].split()
    assert str(jobs.house.data) not in " ".join(arguments), "no path of the server"
    # The token is not in there either, and the server's own port is not reached from there.
    assert arguments[1:3] == ["agent", "--server"] and arguments[3].startswith(f"{SERVER}:")
    inside = ["nsenter", f"--net=/run/netns/{NETNS}", "python3", "-c"]
    own = json.loads(jobs.house.shoal("env", "--json").stdout)["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]
    reach = f"import socket; socket.create_connection(('127.0.0.1', {own}), 1)"
    assert subprocess.run([*inside, reach], capture_output=True, check=False).returncode != 0


MARK = b"plaintext that no cache may keep. "
SUMS = """
import hashlib, pathlib
for name in ("file/a", "fast/a", "pipe_0"):
    print(hashlib.sha256(pathlib.Path("/opt/ml/input/data", name).read_bytes()).hexdigest())
"""


def test_no_cache_keeps_what_is_encrypted_on_the_server(jobs, cache):
    content = MARK * 100_000
    jobs.put("open/in/a", "open")
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "team"}
    jobs.s3.put_object(Bucket=BUCKET, Key="sealed/in/a", Body=content, **kms)
    modes = {"file": "File", "fast": "FastFile", "pipe": "Pipe"}
    channels = [{**jobs.channel(name, "sealed/in/"), "InputMode": mode} for name, mode in modes.items()]
    name = jobs.python(SUMS, channels=[*channels, jobs.channel("open", "open/in/")])
    jobs.completed(name)
    assert jobs.lines(name) == [hashlib.sha256(content).hexdigest()] * 3

    def kept():
        found = []
        # What is removed meanwhile is not kept.
        for folder, _, names in os.walk(cache):
            for name in names if "xgboost" not in folder else ():
                with contextlib.suppress(OSError):
                    # Opening a pipe waits for its writer.
                    if (path := pathlib.Path(folder, name)).is_file():
                        found.append(path.read_bytes())
        return [content for content in found if content == b"open" or MARK in content]

    eventually(lambda: kept() == [b"open"])


READ = """
import gzip, hashlib, os, pathlib, time
fast = pathlib.Path("/opt/ml/input/data/fast")
print(sorted(str(path.relative_to(fast)) for path in fast.rglob("*")), (fast / "big").stat().st_size)
with open(fast / "big", "rb") as file:
    file.seek(30 << 20)
    print(file.read(5))
try:
    (fast / "new").write_text("")
    print("written")
except OSError as error:
    print(error.strerror)
print(hashlib.sha256(open("/opt/ml/input/data/train_0", "rb").read()).hexdigest())
print(hashlib.sha256((fast / "big").read_bytes()).hexdigest() if os.environ.get("WHOLE") else "")
"""


def test_data_is_read_while_the_program_runs(jobs, cache):
    big = os.urandom(1 << 20) * 40
    jobs.put("fast/in/big", big[: 30 << 20] + b"there" + big[(30 << 20) + 5 :])
    jobs.put("fast/in/sub/small", "1")
    rows = os.urandom(3 << 20)
    for number in range(2):
        jobs.put(f"fast/rows/{number}.gz", gzip.compress(rows, 1))
    fast = {**jobs.channel("fast", "fast/in/"), "InputMode": "FastFile"}
    pipe = {**jobs.channel("train", "fast/rows/"), "InputMode": "Pipe", "CompressionType": "Gzip"}
    has_fuse = os.path.exists("/dev/fuse")

    def run(**environment):
        name = jobs.python(READ, channels=[fast, pipe], Environment=environment)
        jobs.completed(name)
        notes = [line for line in jobs.logs(name)["algo-1"] if line.startswith("[shoal] ")]
        return jobs.lines(name), " ".join(notes)

    lines, notes = run()
    assert lines[:2] == [f"['big', 'sub', 'sub/small'] {len(big)}", "b'there'"]
    assert lines[3] == hashlib.sha256(rows + rows).hexdigest()
    if has_fuse:
        assert lines[2] == "Read-only file system"
        fetched = int(notes.split("channel fast (FastFile): ")[1].split()[0])
        assert 1 << 20 <= fetched <= 8 << 20, "what was read, and not the whole object"
    lines, notes = run(WHOLE="1")
    assert lines[4] == hashlib.sha256(jobs.s3.get_object(Bucket=BUCKET, Key="fast/in/big")["Body"].read()).hexdigest()
    if has_fuse:
        again = int(notes.split("channel fast (FastFile): ")[1].split()[0])
        assert again == len(big) - fetched, "what the node has is not fetched again"
        (cache / "no-fuse").touch()
        lines, notes = run(WHOLE="")
        (cache / "no-fuse").unlink()
    assert lines[1:3] == ["b'there'", "written"] and "FastFile mode needs FUSE" in notes, (lines, notes)


def test_fast_file_shows_manifests_and_parts(jobs):
    name = fast_files(jobs)
    if os.path.exists("/dev/fuse"):
        for lines in jobs.logs(name).values():
            fetched = re.findall(r"channel (\w+) \(FastFile\): \d+ bytes were fetched", "".join(lines))
            assert fetched == ["listed", "listed_parts", "parts", "whole"], lines


def test_a_program_that_waits_for_data_can_be_stopped(jobs):
    jobs.put("fast/endless/a", b"0" * (8 << 20))
    script = """
import os, time
print("ready", flush=True)
while True:
    for name in ("fast/a", "train_0"):
        open("/opt/ml/input/data/" + name, "rb").read(10)
        time.sleep(60)
"""
    fast = {**jobs.channel("fast", "fast/endless/"), "InputMode": "FastFile"}
    pipe = {**jobs.channel("train", "fast/endless/"), "InputMode": "Pipe"}
    name = jobs.python(script, channels=[fast, pipe])
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name, 30)["TrainingJobStatus"] == "Stopped"


def test_an_exec_session_and_the_servers_directory_is_hidden(jobs):
    name = jobs.command("echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    (pid,) = traces.agents(jobs.house).values()
    agent = pathlib.Path("/proc", str(pid))
    assert list((agent / "root" / str(jobs.house.data).lstrip("/")).parent.iterdir()) == []
    assert os.readlink(agent / "ns/net") != os.readlink("/proc/self/ns/net")
    done = jobs.house.shoal(
        "jobs", "exec", name, "--", "/bin/sh", "-c", "echo $SM_CURRENT_HOST; cat; exit 7", check=False, input="typed\n"
    )
    assert (done.stdout.split(), done.returncode) == (["algo-1", "typed"], 7)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_a_script_reaches_the_server_and_goes_on_from_its_checkpoints(jobs):
    script = """
import json, os, pathlib, urllib.request
place = pathlib.Path("/opt/ml/checkpoints/state")
before = int(place.read_text()) if place.exists() else 0
place.write_text(str(before + 1))
print("before", before)
try:
    urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/tests")
except urllib.error.HTTPError as error:
    print("server", error.code)
"""
    config = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/remote/state"}}
    for before in (0, 1):
        name = create_script(jobs, {"train.py": script}, **config)
        jobs.completed(name)
        assert jobs.lines(name) == [f"before {before}", "server 403"]
    assert jobs.s3.get_object(Bucket=BUCKET, Key="remote/state/state")["Body"].read() == b"2"


def test_xgboost_on_two_instances_whose_objects_come_once(jobs, cache):
    rows = data.rows(200, 1)
    for part in range(2):
        jobs.put(f"remote/train/{part}.csv", data.as_csv(rows[part::2]))
    parameters = {"objective": "binary:logistic", "num_round": 3, "eval_metric": "auc"}
    names = [jobs.xgboost("remote/train/", instances=2, sharded=True, **parameters) for _ in range(2)]
    models = []
    for name in names:
        jobs.completed(name)
        models.append(jobs.artifact(name)["xgboost-model"])
    assert models[0] == models[1]
    kept = [
        path for path in (cache / "objects").glob("*/*") if path.parent.name.isalnum() and path.parent.name != "locks"
    ]
    sizes = [path.stat().st_size for path in kept]
    assert all(sizes.count(len(data.as_csv(rows[part::2]))) >= 1 for part in range(2))
    assert len({path.parent.name for path in kept}) == len(kept), "each object once"


def test_warm_instances(jobs):
    keeping = {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": 600}
    jobs.put("remote/warm/a", "first")

    def done():
        name = jobs.command(
            "cat $SM_CHANNEL_TRAIN/a", ResourceConfig=keeping, InputDataConfig=[jobs.channel("train", "remote/warm/")]
        )
        jobs.completed(name)
        eventually(lambda: jobs.describe(name)["WarmPoolStatus"]["Status"] != "InUse")
        return name

    # Where the machine is too busy for a kept agent to answer, a job gets a new one.
    for _ in range(6):
        first, second = done(), done()
        if jobs.describe(first)["WarmPoolStatus"]["Status"] == "Reused":
            break
    assert jobs.describe(first)["WarmPoolStatus"]["ReusedByJob"] == second
    assert jobs.lines(second) == ["first"]
    jobs.sagemaker.update_training_job(TrainingJobName=second, ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def test_trials_of_a_built_in_algorithm_follow_each_other_on_an_instance(jobs):
    # What their zygote has mounted stays, though the directories of the trial before are removed.
    rows = data.rows(200, 1)
    for channel, part in (("train", rows[:150]), ("validation", rows[150:])):
        jobs.put(f"tuning/{channel}/0.csv", data.as_csv(part))
    tuning = Tuning(jobs)
    definition = tuning.xgboost(objective="binary:logistic", num_round=3, eval_metric="auc")
    ranges = {"IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "2", "MaxValue": "5"}]}
    launched = len(jobs.house.launched.read_text().splitlines())
    name = tuning.create(tuning.request(definition, ("Maximize", "validation:auc"), ranges, jobs=4, parallel=1))
    tuning.completed(name)
    assert {trial["TrainingJobStatus"] for trial in tuning.trials(name)} == {"Completed"}
    assert len(jobs.house.launched.read_text().splitlines()) - launched < 4, "no trial had the instance of another"


def test_a_tuning_job(jobs):
    tuning = Tuning(jobs)
    name = tuning.create(tuning.request(tuning.definition(), jobs=3))
    tuning.completed(name)
    assert {trial["TrainingJobStatus"] for trial in tuning.trials(name)} == {"Completed"}


def test_a_servers_restart(jobs):
    name = jobs.command(
        "echo ready; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo gone on; echo m > $SM_MODEL_DIR/m"
    )
    jobs.saying(name, "ready")
    jobs.house.stop(signal.SIGKILL)
    jobs.house.start()
    jobs.connect()
    assert jobs.house.shoal("jobs", "exec", name, "--", "/bin/touch", "/tmp/go", check=False).returncode == 0
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "gone on"]
    assert jobs.artifact(name) == {"m": b"m\n"}


def agent_by_hand(jobs, cache, **changes):
    arguments = jobs.house.launched.read_text().splitlines()[-1].split()
    words = {
        name: arguments[arguments.index(name) + 1] for name in ("--server", "--fingerprint", "--attempt", "--data-id")
    }
    words |= {name: value for name, value in changes.items() if name.startswith("--")}
    flags = [word for pair in words.items() for word in pair]
    variables = {"PATH": os.environ["PATH"], "SHOAL_CACHE": str(cache), "SHOAL_AGENT_TOKEN": "00ff"}
    command = [arguments[0], "agent", *flags, "--host", "1"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_another_certificate_and_another_token_are_refused(jobs, tmp_path):
    name = jobs.command("echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    wrong = agent_by_hand(jobs, tmp_path, **{"--fingerprint": "00" * 32})
    assert wrong.returncode == 1
    assert "shows a certificate with fingerprint" in wrong.stderr and "it is another server" in wrong.stderr
    refused = agent_by_hand(jobs, tmp_path)
    assert refused.returncode == 1 and "wrong token" in refused.stderr
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)


def test_silent_callers_delay_no_agent(jobs):
    arguments = jobs.house.launched.read_text().splitlines()[-1].split()
    host, port = arguments[3].rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    jobs.completed(jobs.command("true"))
    for one in silent:
        one.close()


def test_nothing_is_left(jobs, cache):
    eventually(lambda: traces.agents_of_all(jobs.house) == [])
    traces.nothing_left(jobs.house)
    assert eventually(lambda: list((cache / "runs").iterdir()) == [cache / "runs/lock"])
