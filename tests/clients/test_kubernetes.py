"""Jobs on a real Kubernetes control plane, beside this machine: how they get there, wait, fail and are
found again. There is no kubelet here: the tests' own node agent (k8s_node.py) runs pods as processes.
What jobs compute there is shown by the tests that run with SHOAL_TEST_TARGET=kubernetes.
"""

import signal

import k8s_cluster
import pytest
from conftest import kubernetes_target
from house import House, eventually
from jobs import Jobs

SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
}
WAITS = "echo ready; while true; do sleep 0.1; done"
TYPES = """
[target.cluster.types]
"ml.c5.xlarge" = { cpus = 1, memory = "1Gi" }
"ml.c5.2xlarge" = { cpus = 1, memory = "1Gi", node_selector = { disk = "none-such" } }
"ml.m5.xlarge" = { cpus = 8, memory = "1Gi" }
"ml.m5.2xlarge" = { cpus = 8, memory = "1Gi", priority_class = "low" }
"""
PRIORITIES = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    for name, value in (("low", -10), ("high", 1000))
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if problem := k8s_cluster.missing():
        pytest.skip(problem)
    cluster = k8s_cluster.Cluster(tmp_path_factory.mktemp("cluster"), nodes=3)
    try:
        yield cluster.up()
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def jobs(cluster):
    cluster.apply(*PRIORITIES)
    cluster.images({"registry/mine:1": own_image(cluster)})
    house = House(settings=kubernetes_target(cluster).replace('default_target = "cluster"', "") + TYPES)
    yield Jobs(house)
    house.close()


def own_image(cluster):
    """A user's image: its program is on the PATH that it sets itself, and reads what it brought."""
    root = cluster.root / "mine"
    for name in ("app", "opt/ml/code", "opt/program"):
        (root / name).mkdir(parents=True)
    (root / "app/greeting").write_text("of the image")
    (root / "opt/ml/code/helper.sh").write_text("echo helped")
    train = root / "opt/program/train"
    train.write_text('#!/bin/sh\necho "$1 $FRAMEWORK $(cat greeting)"; sh /opt/ml/code/helper.sh; ls /opt/ml/input/config\n')
    train.chmod(0o755)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr").mkdir()
    (root / "etc").mkdir()
    return {
        "root": str(root),
        "files": {"/usr": "/usr"},
        "env": {"PATH": "/opt/program:/usr/bin:/bin", "FRAMEWORK": "mine"},
        "cwd": "/app",
    }


def pod(jobs, line, instances=1, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instances=instances, instance_type=kind, **more)


def message(jobs, name):
    return jobs.describe(name)["SecondaryStatusTransitions"][-1]["StatusMessage"]


def ours(cluster):
    return {name: it for name, it in cluster.pods().items() if name.startswith("shoal-")}


def test_types_choose_the_target_and_its_state_is_shown(jobs):
    local = jobs.command("echo $SM_CURRENT_HOST")
    several = pod(jobs, 'echo "$SM_HOSTS $(getent hosts algo-2 | wc -l)"; id -u; ls -d /opt/ml/output', instances=2)
    jobs.completed(local)
    jobs.completed(several)
    assert jobs.lines(several, "algo-2") == ['["algo-1","algo-2"] 1', "0", "/opt/ml/output"]
    shown = jobs.house.shoal("targets").stdout
    assert "Kubernetes v1.20" in shown and "3 of 3 nodes ready, 24 processors" in shown, shown
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="EnableNetworkIsolation is not possible"):
        pod(jobs, "true", EnableNetworkIsolation=True)


def test_an_image_of_the_users_own_runs_unchanged(jobs):
    request = jobs.request("own", AlgorithmSpecification={"TrainingImage": "registry/mine:1", "TrainingInputMode": "File"})
    request["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    jobs.sagemaker.create_training_job(**request)
    jobs.completed(request["TrainingJobName"])
    lines = jobs.lines(request["TrainingJobName"])
    assert lines[:2] == [" mine of the image", "helped"] and "hyperparameters.json" in lines, lines


def test_what_a_pod_lacks_is_the_reason_and_an_image_that_cannot_be_pulled_fails_the_job(jobs, cluster):
    waiting = pod(jobs, "true", kind="ml.c5.2xlarge")
    request = jobs.request("none", AlgorithmSpecification={"TrainingImage": "registry/none:1", "TrainingInputMode": "File"})
    request["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    jobs.sagemaker.create_training_job(**request)
    reason = jobs.failed(request["TrainingJobName"])
    assert '"registry/none:1" cannot be pulled' in reason, reason
    text = eventually(lambda: "Unschedulable" in (text := message(jobs, waiting)) and text)
    assert "Waiting on compute target cluster" in text and "--show-labels" in text, text
    jobs.sagemaker.stop_training_job(TrainingJobName=waiting)
    assert jobs.wait(waiting)["TrainingJobStatus"] == "Stopped"
    eventually(lambda: ours(cluster) == {})


def test_a_server_and_an_api_server_that_are_killed_lose_nothing(jobs, cluster):
    running = pod(jobs, "echo ready; until [ -e /tmp/go ]; do sleep 0.1; done; echo gone on", instances=2)
    jobs.saying(running, "ready")
    cluster.kill_server()
    try:
        late = pod(jobs, "echo late")
        eventually(lambda: "the compute target cluster does not answer" in message(jobs, late))
        shown = jobs.house.shoal("targets", check=False)
        assert shown.returncode == 1 and "Unavailable" in shown.stdout, shown.stdout
        jobs.house.stop(signal.SIGKILL)
    finally:
        cluster.start_server()
    jobs.house.start()
    jobs.connect()
    assert jobs.describe(running)["TrainingJobStatus"] == "InProgress"
    for rank in ("0", "1"):
        jobs.house.shoal("jobs", "exec", running, "--rank", rank, "--", "/bin/touch", "/tmp/go")
    jobs.completed(running)
    assert jobs.lines(running) == ["ready", "gone on"]
    jobs.completed(late)
    eventually(lambda: ours(cluster) == {})


def test_a_node_that_is_lost_is_retried_and_a_pod_that_is_deleted_fails(jobs, cluster):
    line = "echo ready; if [ -e /opt/ml/checkpoints/again ]; then exit 0; fi; echo x > /opt/ml/checkpoints/again; sleep 1000"
    checkpoints = {"CheckpointConfig": {"S3Uri": "s3://tests/k8s/node"}}
    name = pod(jobs, line, RetryStrategy={"MaximumRetryAttempts": 1}, **checkpoints)
    jobs.saying(name, "ready")
    eventually(lambda: jobs.s3.list_objects_v2(Bucket="tests", Prefix="k8s/node").get("KeyCount"))
    [running] = ours(cluster).values()
    node = cluster.node_of(running)
    cluster.kill_node(node)
    try:
        jobs.completed(name)
        messages = [it["StatusMessage"] for it in jobs.describe(name)["SecondaryStatusTransitions"]]
        assert any("was lost" in text or "was silent" in text for text in messages), messages
    finally:
        cluster.start_node(node)
        cluster.until_ready()
    deleted = pod(jobs, WAITS)
    jobs.saying(deleted, "ready")
    eventually(lambda: len(ours(cluster)) == 1)
    [running] = ours(cluster)
    cluster.api.delete(f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/pods/{running}", gracePeriodSeconds=1)
    reason = jobs.failed(deleted)
    assert f"pod {running} was deleted on the cluster" in reason, reason


def test_a_pod_of_a_higher_priority_interrupts_spot_training(jobs, cluster):
    name = pod(jobs, WAITS, instances=3, kind="ml.m5.2xlarge", **SPOT)
    jobs.saying(name, "ready")
    outside = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "outside", "namespace": k8s_cluster.NAMESPACE},
        "spec": {
            "priorityClassName": "high",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "host",
                    "command": ["/bin/sleep", "2"],
                    "resources": {"requests": {"cpu": "8"}},
                }
            ],
        },
    }
    cluster.apply(outside)
    eventually(lambda: "Interrupted" in [it["Status"] for it in jobs.describe(name)["SecondaryStatusTransitions"]])
    eventually(lambda: jobs.describe(name)["SecondaryStatus"] == "Training")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
