"""Jobs on a real Slurm cluster, beside this machine: how they get there, wait, fail and are found
again. What they compute there is shown by the tests that run with SHOAL_TEST_TARGET=slurm.
"""

import hashlib
import signal
import time

import pytest
import slurm_cluster
from house import House, eventually
from jobs import Jobs

TAG = [{"Key": "shoal:target", "Value": "cluster"}]
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
}
WAITS = "echo ready; while true; do sleep 0.1; done"
TYPES = """
[target.cluster.types]
"ml.m5.xlarge" = { nodes = "exclusive", partition = "high" }
"ml.c5.xlarge" = {}
"ml.c5.2xlarge" = { partition = "none-such" }
"ml.m4.xlarge" = { args = ["--mem=999G"] }
"""


@pytest.fixture(scope="module")
def cluster(start_cluster):
    return start_cluster(slurm_cluster, nodes=3, own_caches=True)


@pytest.fixture(scope="module")
def jobs(cluster):
    house = House(settings=cluster.settings().replace('default_target = "cluster"', "") + TYPES)
    yield Jobs(house)
    house.close()


def slurm(jobs, line, instances=1, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instances=instances, instance_type=kind, **more)


def message(jobs, name):
    return jobs.describe(name)["SecondaryStatusTransitions"][-1]["StatusMessage"]


def queue(cluster):
    lines = cluster.call("squeue", "-h", "-o", "%A %T").splitlines()
    return dict(line.split() for line in lines)


def test_types_and_tags_choose_the_target(jobs, cluster):
    local = jobs.command("echo $SM_CURRENT_HOST")
    by_type = slurm(jobs, 'echo "$(cat /proc/sys/kernel/hostname) $SM_HOSTS"', instances=2)
    jobs.completed(local)
    jobs.completed(by_type)
    assert jobs.lines(by_type, "algo-2") == ['algo-2 ["algo-1","algo-2"]']
    starts = [it["StatusMessage"] for it in jobs.describe(by_type)["SecondaryStatusTransitions"]]
    assert any("on compute target cluster" in text for text in starts), starts
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="has no instance type ml.t3.medium"):
        jobs.command("true", Tags=TAG)
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="are local, cluster"):
        jobs.command("true", Tags=[{"Key": "shoal:target", "Value": "moon"}])
    shown = jobs.house.shoal("targets").stdout
    assert "jobs of Shoal: " in shown and "partition main (default): up, " in shown and "Unavailable" not in shown, (
        shown
    )


def test_hosts_pass_inputs_on_to_each_other(jobs):
    content = bytes(range(256)) * (96 << 10)
    jobs.put("passed/large.bin", content)
    jobs.put("passed/small.txt", "small")
    before = jobs.inputs_sent()
    line = "cd /opt/ml/input/data/data; cat small.txt; sha256sum < large.bin"
    name = slurm(jobs, line, instances=3, InputDataConfig=[jobs.channel("data", "passed")])
    jobs.completed(name)
    for host in ("algo-1", "algo-2", "algo-3"):
        lines = jobs.lines(name, host)
        assert any(hashlib.sha256(content).hexdigest() in line for line in lines), lines
    share = (jobs.inputs_sent() - before) / len(content)
    assert 1 <= share < 1.3, f"the server has sent the input {share} times"


def test_a_shared_directory_has_inputs_once(jobs, cluster):
    shared = cluster.root / "shared"
    settings, at = (jobs.house.data / "shoal.toml").read_text(), "[target.cluster]\n"
    assert at in settings
    jobs.house.stop()
    (jobs.house.data / "shoal.toml").write_text(settings.replace(at, f'{at}shared = "{shared}"\n'))
    jobs.house.start()
    jobs.connect()
    jobs.put("shared/large.bin", content := b"content" * (1 << 20))
    line = "sha256sum < /opt/ml/input/data/data/large.bin"
    data = {"InputDataConfig": [jobs.channel("data", "shared")]}
    # It is not there yet: each node keeps its own, and the log shows why.
    name = slurm(jobs, line, instances=2, **data)
    jobs.completed(name)
    lines = jobs.logs(name)["algo-1"]
    assert any("is not there on this node: mount it" in line for line in lines), lines
    shared.mkdir()
    before = jobs.inputs_sent()
    name = slurm(jobs, line, instances=2, **data)
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        lines = jobs.lines(name, host)
        assert any(hashlib.sha256(content).hexdigest() in line for line in lines), lines
    assert jobs.inputs_sent() - before == len(content), "one node has put it there for both"
    [kept] = (shared / "shoal/objects").iterdir()
    eventually(lambda: kept.stat().st_nlink == 1)
    assert kept.read_bytes() == content


def test_what_slurm_refuses_is_the_reason(jobs):
    # What does not exist is known at creation; how much there is may change with the nodes that are up.
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="invalid partition specified: none-such"):
        slurm(jobs, "true", kind="ml.c5.2xlarge")
    reason = jobs.failed(slurm(jobs, "true", kind="ml.m4.xlarge"))
    assert "Slurm refused the job on compute target cluster" in reason and "not available" in reason, reason


def test_a_job_waits_in_slurms_queue_and_shows_why(jobs, cluster):
    first = slurm(jobs, WAITS, instances=3, kind="ml.m5.xlarge")
    jobs.saying(first, "ready")
    second = slurm(jobs, "true", kind="ml.m5.xlarge")
    queued = lambda: "Waiting in the queue of compute target cluster" in (text := message(jobs, second)) and text
    text = eventually(queued)
    eventually(lambda: "Resources (it is the next one, and waits for resources)" in message(jobs, second))
    assert "job " in text
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    assert jobs.wait(first)["TrainingJobStatus"] == "Stopped"
    jobs.completed(second)
    eventually(lambda: queue(cluster) == {})


def test_a_server_that_was_killed_finds_its_jobs(jobs, cluster):
    running = slurm(jobs, "echo ready; until [ -e /tmp/go ]; do sleep 0.1; done; sleep 3; echo gone on", instances=2)
    jobs.saying(running, "ready")
    jobs.house.stop(signal.SIGKILL)
    jobs.house.start()
    jobs.connect()
    for rank in ("0", "1"):
        # Its agents find the new server one by one. The program continues for a while, as a command
        # whose instance ends at once may not be answered.
        touch = ["jobs", "exec", running, "--rank", rank, "--", "/bin/touch", "/tmp/go"]
        eventually(lambda touch=touch: jobs.house.shoal(*touch, check=False).returncode == 0)
    jobs.completed(running)
    assert jobs.lines(running) == ["ready", "gone on"]


def test_a_restored_copy_ends_nothing_of_the_originals(jobs, cluster):
    running = slurm(jobs, WAITS)
    jobs.saying(running, "ready")
    target, data = jobs.house.root / "backup", jobs.house.root / "copy"
    jobs.house.shoal("backup", target)
    jobs.house.shoal("restore", target, "--data-dir", data)
    refused = jobs.house.shoal("restore", target, "--data-dir", jobs.house.root / "second", "--take-over", check=False)
    assert refused.returncode == 1 and "is still here" in refused.stderr
    before = queue(cluster)
    copy = House("--silence-s", "1", data=data)
    try:
        assert "restored from a backup" in Jobs(copy).failed(running)
        # What it had started, too, is ended when it ends.
        time.sleep(2)
        assert queue(cluster) == before
    finally:
        copy.stop()
    # Nor does the original, which ends what it does not know when it starts.
    copy = House(data=data)
    try:
        of_copy = slurm(Jobs(copy), WAITS)
        Jobs(copy).saying(of_copy, "ready")
        both = queue(cluster)
        jobs.house.stop()
        jobs.house.start()
        jobs.connect()
        time.sleep(1)
        assert queue(cluster) == both and len(both) == 2
        Jobs(copy).sagemaker.stop_training_job(TrainingJobName=of_copy)
        assert Jobs(copy).wait(of_copy)["TrainingJobStatus"] == "Stopped"
    finally:
        copy.stop()
    eventually(lambda: jobs.describe(running)["SecondaryStatus"] == "Training")
    assert jobs.describe(running)["SecondaryStatus"] == "Training"
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    assert jobs.wait(running)["TrainingJobStatus"] == "Stopped"


def test_a_server_that_takes_over_has_the_jobs_of_the_lost_one(jobs, cluster):
    house = jobs.house
    running = slurm(jobs, "echo ready; until [ -e /tmp/over ]; do sleep 0.1; done; sleep 3; echo continued")
    jobs.saying(running, "ready")
    target = house.root / "taken-over"
    house.shoal("backup", target)
    house.stop(signal.SIGKILL)
    house.data.rename(house.root / "lost")
    house.shoal("restore", target, "--data-dir", house.data, "--take-over")
    house.start()
    jobs.connect()
    # Once its agent is back.
    touch = ["jobs", "exec", running, "--rank", "0", "--", "/bin/touch", "/tmp/over"]
    eventually(lambda: house.shoal(*touch, check=False).returncode == 0)
    jobs.completed(running)
    assert jobs.lines(running)[-1] == "continued"


def test_a_controller_that_is_gone_delays_and_fails_nothing(jobs, cluster):
    running = slurm(jobs, WAITS)
    jobs.saying(running, "ready")
    cluster.kill_controller()
    try:
        late = slurm(jobs, "echo late")
        eventually(lambda: "the compute target cluster does not answer" in message(jobs, late))
        shown = jobs.house.shoal("targets", check=False)
        assert shown.returncode == 1 and "Unavailable" in shown.stdout, shown.stdout
        assert jobs.describe(running)["TrainingJobStatus"] == "InProgress"
    finally:
        cluster.start_controller()
    jobs.completed(late)
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    assert jobs.wait(running)["TrainingJobStatus"] == "Stopped"


def test_a_node_that_fails_is_retried(jobs, cluster):
    line = "echo ready; if [ -e /opt/ml/checkpoints/again ]; then exit 0; fi; echo x > /opt/ml/checkpoints/again; sleep 1000"
    checkpoints = {"CheckpointConfig": {"S3Uri": "s3://tests/slurm/node"}}
    name = slurm(jobs, line, RetryStrategy={"MaximumRetryAttempts": 1}, **checkpoints)
    jobs.saying(name, "ready")
    eventually(lambda: jobs.s3.list_objects_v2(Bucket="tests", Prefix="slurm/node").get("KeyCount"))
    eventually(lambda: len(queue(cluster)) == 1)
    node = int(cluster.call("squeue", "-h", "-o", "%N").strip()[1:])
    cluster.kill_node(node)
    try:
        jobs.completed(name)
        messages = [it["StatusMessage"] for it in jobs.describe(name)["SecondaryStatusTransitions"]]
        assert any(f"node n{node} of Slurm job" in text and "NODE_FAIL" in text for text in messages), messages
    finally:
        cluster.start_node(node)


def test_a_job_of_a_higher_priority_interrupts_spot_training(jobs, cluster):
    cluster.until_idle()
    name = slurm(jobs, WAITS, instances=3, **SPOT)
    jobs.saying(name, "ready")
    options = ["--parsable", "--output=/dev/null", "-p", "high", "-N3", "--exclusive"]
    outside = cluster.call("sbatch", *options, "--wrap", "sleep 3").strip()
    assert outside
    steps = lambda: [(it["Status"], it["StatusMessage"]) for it in jobs.describe(name)["SecondaryStatusTransitions"]]
    was_interrupted = lambda: "Interrupted" in dict(steps())
    eventually(lambda: was_interrupted() or jobs.describe(name)["TrainingJobStatus"] != "InProgress")
    assert was_interrupted(), (steps(), cluster.call("squeue", "-h", "-o", "%A %T %r %P %k"))
    eventually(lambda: jobs.describe(name)["SecondaryStatus"] == "Training")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_a_job_that_is_cancelled_on_the_cluster(jobs, cluster):
    name = slurm(jobs, WAITS)
    jobs.saying(name, "ready")
    cluster.call("scancel", *queue(cluster))
    reason = jobs.failed(name)
    assert "was cancelled on the cluster" in reason or "ended without a report" in reason, reason
