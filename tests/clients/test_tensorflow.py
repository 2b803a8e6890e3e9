"""TensorFlow's distributions: TF_CONFIG on each instance, and a parameter server beside each
script. And its data, TFRecord files, in each input mode.
"""

import json
import pathlib
import re

import data
import pytest
import tfrecords
from house import BUCKET
from test_distributions import by_sdk_v2
from test_script_mode import create

TENSORFLOW = "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.12-cpu-py310"
HERE = pathlib.Path(__file__).parent
SCRIPTS = {name: (HERE / name).read_text() for name in ("mnist_mirrored.py", "mnist_coordinator.py")}
SERVERS, MIRRORED = "sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled"

# Without TensorFlow nobody serves but the script: every process listens where it was told that it
# is, and finds all others.
CONNECTS = """
import json, os, socket, threading, time
told = json.loads(os.environ["TF_CONFIG"])
cluster, task, host = told["cluster"], told["task"], os.environ["SM_CURRENT_HOST"]
own = cluster[task["type"]][task["index"]]
mine = {own, *[address for address in cluster.get("ps", []) if address.startswith(host + ":")]}
assert own.startswith(host + ":"), (own, host)
everybody = {address for job in cluster.values() for address in job}
heard, all_heard = set(), threading.Event()
def listen(address):
    with socket.create_server(("0.0.0.0", int(address.split(":")[1]))) as server:
        while True:
            heard.add((address, server.accept()[0].recv(100).decode()))
            if len(heard) == len(mine) * len(cluster_hosts):
                all_heard.set()
cluster_hosts = {address.split(":")[0] for address in everybody}
for address in mine:
    threading.Thread(target=listen, args=(address,), daemon=True).start()
for address in everybody:
    name, port = address.split(":")
    while True:
        try:
            with socket.create_connection((name, int(port))) as line:
                line.sendall(host.encode())
            break
        except OSError:
            time.sleep(0.02)
assert all_heard.wait(120), heard
print(task["type"], task["index"], "was reached by", len(cluster_hosts), "hosts at", len(mine), "ports")
"""


@pytest.mark.parametrize(
    "distribution, expected",
    [(SERVERS, ["master 0", "worker 0", "worker 1", 2]), (MIRRORED, ["worker 0", "worker 1", "worker 2", 1])],
    ids=["parameter servers", "mirrored"],
)
def test_processes_find_each_other_as_tf_config_tells_them(jobs, distribution, expected):
    *tasks, ports = expected
    name = create(jobs, {"train.py": CONNECTS}, instances=3, hyperparameters={distribution: "true"})
    jobs.completed(name)
    for number, task in enumerate(tasks, 1):
        assert jobs.lines(name, f"algo-{number}") == [f"{task} was reached by 3 hosts at {ports} ports"]


@pytest.fixture(scope="module")
def tensorflow(house):
    """Where TensorFlow's environment is there already: it is 1.8 GB."""
    if not house.has_environment("tensorflow"):
        pytest.skip("needs the TensorFlow environment: shoal env-cache prepare tensorflow")


@pytest.fixture(scope="module")
def digits(jobs, tensorflow):
    """Where MNIST is."""
    for name, content in data.mnist().items():
        jobs.put(f"mnist/{name}", content)
    return f"s3://{BUCKET}/mnist"


@pytest.fixture
def trained(house, jobs, digits, tmp_path):
    """Trains by SDK v2; gives the job's name."""

    def train(program, distribution, instances, steps):
        for name, text in SCRIPTS.items():
            (tmp_path / name).write_text(text)
        given = {
            "framework_version": "2.12",
            "py_version": "py310",
            "instance_count": instances,
            "instance_type": "ml.m5.large",
            "distribution": {distribution: {"enabled": True}},
            "hyperparameters": {"steps": steps},
        }
        [name] = by_sdk_v2(house, tmp_path, "TensorFlow", [given], SCRIPTS[program], digits)
        # A process that loads TensorFlow is busy for seconds, and there are up to two on each
        # instance.
        jobs.wait(name, 600)
        jobs.completed(name)
        return name

    return train


def results(jobs, name, host):
    """Loss and accuracy that a host has said."""
    said = (re.fullmatch("loss=(.+); accuracy=(.+);", line) for line in jobs.lines(name, host))
    return [(float(it[1]), float(it[2])) for it in said if it]


@pytest.mark.parametrize("instances", [2, 4])
def test_mirrored_workers_train_as_one_process_does(jobs, trained, instances):
    name = trained("mnist_mirrored.py", "multi_worker_mirrored_strategy", instances, 100)
    [(loss, accuracy)] = results(jobs, name, "algo-1")
    assert accuracy > 0.85
    for number in range(instances):
        host = f"algo-{number + 1}"
        assert f"worker {number} of {instances} on {host}" in jobs.lines(name, host)
        assert results(jobs, name, host) == [(loss, accuracy)]
    kept = jobs.artifact(name)
    losses = json.loads(kept["losses.json"])
    assert losses["of_all"] == pytest.approx(losses["alone"], rel=2e-3)
    assert losses["of_all"][-1] < 0.5 < losses["of_all"][0]
    assert kept["model.keras"]


@pytest.mark.parametrize("instances", [2, 4])
def test_parameter_servers_hold_what_the_chief_lets_workers_train(jobs, trained, instances):
    name = trained("mnist_coordinator.py", "parameter_server", instances, 300)
    [(_, accuracy)] = results(jobs, name, "algo-1")
    assert accuracy > 0.85
    servers = " ".join(f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(instances))
    assert f"chief: weights on {servers}" in jobs.lines(name, "algo-1")
    steps = [jobs.lines(name, f"algo-{number + 1}").count("one step") for number in range(instances)]
    # Which worker does how many is not said.
    assert steps[0] == 0 and sum(steps) == 300, steps
    assert jobs.artifact(name)["model.keras"]


# Between graphs, as scripts for parameter servers are: each fits the same line to samples of its
# own, with slope and offset on a server each. The master goes on when the worker is gone, with the
# offset on the worker's instance.
SERVED = """
import json, os, socket, time
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
told = json.loads(os.environ["TF_CONFIG"])
task, index = told["task"]["type"], told["task"]["index"]
cluster = tf.train.ClusterSpec(told["cluster"])
server = tf.distribute.Server(cluster, job_name=task, task_index=index)
with v1.device(v1.train.replica_device_setter(worker_device=f"/job:{task}/task:{index}", cluster=cluster)):
    slope, offset, done = (v1.get_variable(name, initializer=0.0) for name in ("slope", "offset", "done"))
    x = tf.random.uniform([64], -1.0, 1.0)
    loss = tf.reduce_mean((slope * x + offset - (3.0 * x + 2.0)) ** 2)
    fit = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    end = done.assign(1.0)
    missing = v1.report_uninitialized_variables()
config = v1.ConfigProto(device_filters=["/job:ps", f"/job:{task}/task:{index}"])
with v1.Session(server.target, config=config) as session:
    if task == "master":
        session.run(v1.global_variables_initializer())
    else:
        while len(session.run(missing)):
            time.sleep(0.05)
    for step in range(100):
        session.run(fit)
    if task == "worker":
        session.run(end)
    else:
        while not session.run(done):
            time.sleep(0.05)
        name, port = told["cluster"]["worker"][0].split(":")
        while not socket.socket().connect_ex((name, int(port))):
            time.sleep(0.05)
        for step in range(100):
            session.run(fit)
    found = [round(float(value), 1) for value in session.run([slope, offset])]
print(task, index, *sorted(variable.device for variable in (slope, offset)), *found if task == "master" else ())
"""


def test_scripts_of_tensorflow_share_variables_on_their_parameter_servers(jobs, tensorflow):
    name = create(jobs, {"train.py": SERVED}, image=TENSORFLOW, instances=2, hyperparameters={SERVERS: "true"})
    jobs.completed(name)
    for host, said in [
        ("algo-1", "master 0 /job:ps/task:0 /job:ps/task:1 3.0 2.0"),
        ("algo-2", "worker 0 /job:ps/task:0 /job:ps/task:1"),
    ]:
        assert said in jobs.lines(name, host)


def test_a_parameter_server_that_dies_ends_the_job_and_says_so(jobs, tensorflow):
    kills = """
import json, os, signal, socket, time
own = next(address for address in json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"] if address.startswith(os.environ["SM_CURRENT_HOST"]))
while socket.socket().connect_ex((own.split(":")[0], 2223)):
    time.sleep(0.05)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if "tf.distribute.Server" in open(f"/proc/{pid}/cmdline").read():
        os.kill(int(pid), signal.SIGKILL)
print("killed")
time.sleep(600)
"""
    name = create(jobs, {"train.py": kills}, image=TENSORFLOW, instances=2, hyperparameters={SERVERS: "true"})
    reason = jobs.failed(name)
    assert "the parameter server of this instance has ended (signal: 9 (SIGKILL))" in reason, reason


# TensorFlow seeks in what TFRecordDataset opens, so that it reads no pipe, on any machine:
# SageMaker's images have an operation of their own for pipes, others a generator.
READS = """
import pathlib, tfrecords
data = pathlib.Path("/opt/ml/input/data")
def of_files(name):
    return [int(record) for path in sorted((data / name).iterdir()) for record in tfrecords.read(path)]
for name, numbers in [
    ("file", of_files("file")), ("fast", of_files("fast")), ("pipe", list(map(int, tfrecords.read(data / "pipe_0"))))
]:
    print(name, len(numbers), sum(numbers), numbers == sorted(numbers))
"""
READS_BY_TENSORFLOW = """
import pathlib, tfrecords
import tensorflow as tf
data = pathlib.Path("/opt/ml/input/data")
def of_files(name):
    files = tf.data.Dataset.list_files(str(data / name / "*.tfrecord"))
    return files.interleave(tf.data.TFRecordDataset, num_parallel_calls=2)
of_pipe = tf.data.Dataset.from_generator(
    lambda: tfrecords.read(data / "pipe_0"), output_signature=tf.TensorSpec((), tf.string)
)
none = tf.constant(0, tf.int64), tf.constant(0, tf.int64)
for name, records in [("file", of_files("file")), ("fast", of_files("fast")), ("pipe", of_pipe)]:
    numbers = records.map(lambda record: tf.strings.to_number(record, tf.int64))
    count, total = numbers.reduce(none, lambda sums, number: (sums[0] + 1, sums[1] + number))
    print(name, int(count), int(total))
"""
MODES = {"file": "File", "fast": "FastFile", "pipe": "Pipe"}


@pytest.fixture(scope="module")
def records(jobs):
    """Three TFRecord files of numbers, as channels in each mode; and how many numbers they have, and
    their sum. They are larger than a pipe.
    """
    numbers = range(6000)
    for at in range(3):
        part = [b"%0*d" % (number % 50 + 4, number) for number in numbers[at * 2000 : at * 2000 + 2000]]
        jobs.put(f"tfrecords/train-{at}.tfrecord", tfrecords.written(part))
    channels = [{**jobs.channel(name, "tfrecords/"), "InputMode": mode} for name, mode in MODES.items()]
    return channels, f"{len(numbers)} {sum(numbers)}"


def reads(jobs, records, script, **options):
    """What a job with these channels prints."""
    files = {"train.py": script, "tfrecords.py": pathlib.Path(tfrecords.__file__).read_text()}
    name = create(jobs, files, channels=records, **options)
    jobs.completed(name)
    return [line for line in jobs.lines(name) if line.split(" ")[0] in MODES]


def test_tfrecords_come_whole_in_each_mode(jobs, records):
    channels, sums = records
    assert reads(jobs, channels, READS) == [f"{name} {sums} True" for name in MODES]


def test_tensorflow_reads_tfrecords_in_each_mode(jobs, tensorflow, records):
    channels, sums = records
    assert reads(jobs, channels, READS_BY_TENSORFLOW, image=TENSORFLOW) == [f"{name} {sums}" for name in MODES]
