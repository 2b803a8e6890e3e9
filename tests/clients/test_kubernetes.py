"""Jobs on a real Kubernetes API server with the real controllers and scheduler; the nodes' agent is the
tests' own (k8s_node.py). How jobs get there, wait, fail and are found again, with the rights of deploy/
alone; and a server that is a pod itself. What jobs compute there is shown by the tests that run with
SHOAL_TEST_TARGET=kubernetes.
"""

import contextlib
import functools
import json
import shutil
import signal
import subprocess

import cluster_faults
import k8s_cluster
import pytest
import registries
from cluster_faults import WAITS, steps
from house import SHOAL, House, eventually
from jobs import Jobs
from k8s_api import ApiError, path_of
from k8s_server import Server
from test_deploy import CHECK
from tuning_jobs import Tuning

SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
}
#: Each call of the launcher's: the verb and the resource.
CALLS = [
    *((verb, "pods") for verb in ("create", "patch", "get", "list", "watch", "delete")),
    *((verb, "services") for verb in ("create", "patch", "get", "list", "delete")),
    *((verb, "events") for verb in ("get", "list")),
    ("get", "persistentvolumeclaims"),
]
#: Of the target: two names of one claim, and one that is not there.
FILE_SYSTEM, READ_ONLY, MISSING = "fs-0123456a", "fs-0123456b", "fs-0123456c"
TYPES = """
[target.cluster.types]
"ml.c5.xlarge" = { cpus = 1 }
"ml.c5.2xlarge" = { cpus = 8, priority_class = "low" }
"ml.g5.xlarge" = { gpus = 1, node_selector = { "tests/node" = "n2" } }
"ml.p3.2xlarge" = { gpus = 16 }
"ml.m5.large" = { priority_class = "none" }
"ml.m5.xlarge" = { service_account = "none" }
"ml.m5.2xlarge" = { cpus = 1, queue = "queue" }
"ml.m5.4xlarge" = { cpus = 1, queue = "queue" }
"""


@pytest.fixture(scope="module")
def cluster(start_cluster):
    cluster = start_cluster(k8s_cluster)
    classes = {"low": -10, "high": 1000}
    cluster.apply(*(priority_class(name, value) for name, value in classes.items()))
    return cluster


def priority_class(name, value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


@pytest.fixture(scope="module")
def jobs(cluster):
    settings = cluster.settings(SHOAL).replace('default_target = "cluster"', "")
    file_systems = f'file_systems = {{ {FILE_SYSTEM} = "datasets", {READ_ONLY} = "datasets:ro", {MISSING} = "none" }}'
    settings += f'image_pull_secrets = ["login"]\n{file_systems}\n{TYPES}'
    house = House("--silence-s", "6", settings=settings)
    yield Jobs(house)
    house.close()


def on_pods(jobs, line, instances=1, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instances=instances, instance_type=kind, **more)


def running_pods(cluster):
    return [it for it in cluster.pods().values() if it["status"]["phase"] == "Running"]


def may(api, verb, resource, namespace, group=""):
    attributes = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]


def test_the_rights_of_deploy_are_enough_and_no_more(cluster):
    api, here = cluster.api_of("shoal"), k8s_cluster.NAMESPACE
    assert [call for call in CALLS if not may(api, *call, here)] == []
    assert may(api, "get", "nodes", "") and not may(api, "delete", "nodes", "")
    assert [call for call in CALLS if may(api, *call, "default")] == []
    assert may(api, "get", "localqueues", here, "kueue.x-k8s.io")
    for resource in ("secrets", "configmaps", "serviceaccounts", "pods/exec", "pods/log"):
        assert not any(may(api, verb, resource, here) for verb in ("get", "list", "create", "patch")), resource
    assert not any(may(api, verb, "persistentvolumeclaims", here) for verb in ("list", "create", "patch", "delete"))
    for resource in ("roles", "rolebindings"):
        assert not may(api, "create", resource, here, "rbac.authorization.k8s.io")
    with pytest.raises(ApiError, match="403.*cannot list resource"):
        api.get(f"/api/v1/namespaces/{here}/secrets")
    with pytest.raises(ApiError, match="403"):
        api.get("/api/v1/namespaces/kube-system/pods")
    assert api.get(f"/api/v1/namespaces/{here}/pods")["kind"] == "PodList"


def test_instances_are_pods(jobs, cluster):
    one = on_pods(jobs, 'echo "$SM_CURRENT_HOST $(nproc)"')
    two = on_pods(jobs, 'echo "$(hostname) $SM_HOSTS"; getent hosts algo-1', instances=2)
    gpu = on_pods(jobs, "echo fits", kind="ml.g5.xlarge")
    for name in (one, two, gpu):
        jobs.completed(name)
    assert jobs.lines(two, "algo-2")[0] == 'algo-2 ["algo-1","algo-2"]'
    shown = lambda: jobs.house.shoal("targets").stdout
    # A node of a busy machine may miss a beat.
    eventually(lambda: "3 of 3 nodes ready" in shown() and "namespace shoal" in shown())
    eventually(lambda: cluster.pods() == {})


def fits_newer_clusters(cluster, place):
    """What runs a job, against the schemas of later versions than the tests' own."""
    kinds = {"Pod": cluster.api.get(f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/pods")["items"]}
    kinds["Service"] = cluster.api.get(f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/services")["items"]
    assert all(kinds.values())
    for kind, found in kinds.items():
        for it in found:
            it.update(apiVersion="v1", kind=kind)
            # The server's own, which is as old as it is.
            del it["status"], it["metadata"]["managedFields"]
    place.write_text(json.dumps([it for found in kinds.values() for it in found]))
    command = [k8s_cluster.built() / "tools/bin/python", "-B", CHECK, place]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert len(found["versions"]) > 10 and found["problems"] == [], found["problems"]


def test_a_pod_that_fits_no_node_waits_and_shows_why(jobs, cluster, tmp_path):
    name = on_pods(jobs, "true", kind="ml.p3.2xlarge")
    eventually(lambda: "Insufficient nvidia.com/gpu" in steps(jobs, name)[-1][1])
    fits_newer_clusters(cluster, tmp_path / "objects.json")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    eventually(lambda: cluster.pods() == {})


@pytest.fixture(scope="module")
def own_image(cluster):
    """A user's image: its program is on the PATH that it sets itself, and reads what it brought."""
    root = cluster.root / "mine"
    for name in ("app", "etc", "opt/ml/code", "opt/program", "usr"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "app/greeting").write_text("of the image")
    (root / "opt/ml/code/helper.sh").write_text("echo helped")
    train = root / "opt/program/train"
    line = 'echo "$1 $FRAMEWORK $(cat greeting)"; sh /opt/ml/code/helper.sh; ls /opt/ml/input/config'
    train.write_text(f"#!/bin/sh\n{line}\n")
    train.chmod(0o755)
    variables = {"PATH": "/opt/program:/usr/bin:/bin", "FRAMEWORK": "mine"}
    return {"root": str(root), "files": {"/usr": "/usr"}, "env": variables, "cwd": "/app"}


def of_image(jobs, image, line=None, **changes):
    specification = {"TrainingImage": image, "TrainingInputMode": "File"}
    if line:
        specification["ContainerEntrypoint"] = ["/bin/sh", "-c", line]
    request = jobs.request("image", AlgorithmSpecification=specification, **changes)
    request["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    jobs.sagemaker.create_training_job(**request)
    return request["TrainingJobName"]


def test_an_image_of_the_users_own_runs_unchanged(jobs, cluster, own_image):
    """An init container brings the program. Its registry is not there: `train` is started."""
    cluster.images({"registry.example/mine:1": own_image})
    name = of_image(jobs, "registry.example/mine:1")
    jobs.completed(name)
    assert "the ENTRYPOINT of registry.example/mine:1 is not known" in jobs.logs(name)["algo-1"][0]
    lines = jobs.lines(name)
    assert lines[0].endswith("mine of the image") and lines[1] == "helped", lines
    assert "hyperparameters.json" in lines, lines


@pytest.fixture
def registry(tmp_path):
    if problem := registries.missing():
        pytest.skip(problem)
    registry = registries.Registry(tmp_path)
    yield registry
    registry.close()


def secret_with(login, name="login"):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": k8s_cluster.NAMESPACE},
        "stringData": {".dockerconfigjson": json.dumps(login)},
    }


def right_to_read(secret):
    """What the chart's value readSecrets adds to the server's rights."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "secrets", "namespace": k8s_cluster.NAMESPACE}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}
    account = {"kind": "ServiceAccount", "name": k8s_cluster.ACCOUNT, "namespace": k8s_cluster.NAMESPACE}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "secrets"},
            "subjects": [account],
        },
    ]


def test_an_image_starts_by_its_entrypoint_as_its_registry_has_it(jobs, cluster, own_image, registry):
    """As `docker run IMAGE train`, here in the shell form; with the login that pods have, once the server
    may read it.
    """
    program = ["/bin/sh", "-c", 'echo "entry $0 $FRAMEWORK $(cat greeting)"']
    images = [registry.push("mine", tag, arm64=["/bin/false"], amd64=program) for tag in ("1", "2")]
    cluster.images(dict.fromkeys(images, own_image))
    cluster.apply(secret_with(registry.login()))
    before = of_image(jobs, images[0])
    jobs.completed(before)
    why, printed = jobs.logs(before)["algo-1"][:2]
    assert "does not show it (HTTP 401); the Secret login cannot be read" in why, why
    assert "mine of the image" in printed
    cluster.apply(*right_to_read("login"))
    path = f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/secrets/login"
    api = cluster.api_of("shoal")
    eventually(lambda: readable(api, path))
    after = of_image(jobs, images[1])
    jobs.completed(after)
    assert jobs.lines(after) == ["entry train mine of the image"]


def readable(api, path):
    try:
        return api.get(path)
    except ApiError:
        return None


def test_a_pod_that_is_deleted_fails_the_job(jobs, cluster):
    name = on_pods(jobs, WAITS)
    jobs.saying(name, "ready")
    [pod] = [it["metadata"]["name"] for it in running_pods(cluster)]
    cluster.delete_pod(pod)
    reason = jobs.failed(name)
    assert f"pod {pod} was deleted on the cluster" in reason, reason
    eventually(lambda: cluster.pods() == {})


def test_an_image_that_cannot_be_pulled(jobs, cluster):
    reason = jobs.failed(of_image(jobs, "registry.example/team/gone:1"))
    assert "registry.example/team/gone:1" in reason and "cannot be pulled" in reason, reason
    eventually(lambda: cluster.pods() == {})


def test_a_server_that_was_killed_finds_its_pods(jobs, cluster):
    line = "echo ready; until [ -e /tmp/go ]; do sleep 0.1; done; sleep 3; echo gone on"
    running = on_pods(jobs, line, instances=2)
    jobs.saying(running, "ready")
    before = {it["metadata"]["uid"] for it in running_pods(cluster)}
    jobs.house.stop(signal.SIGKILL)
    jobs.house.start()
    jobs.connect()
    for rank in ("0", "1"):
        # Its agents find the new server one by one. The program continues for a while, as a command
        # whose instance ends at once may not be answered.
        touch = ["jobs", "exec", running, "--rank", rank, "--", "/bin/touch", "/tmp/go"]
        eventually(lambda touch=touch: jobs.house.shoal(*touch, check=False).returncode == 0)
    assert {it["metadata"]["uid"] for it in running_pods(cluster)} <= before
    jobs.completed(running)
    assert jobs.lines(running) == ["ready", "gone on"]


def test_an_api_server_that_is_gone_delays_and_fails_nothing(jobs, cluster):
    running = on_pods(jobs, WAITS)
    jobs.saying(running, "ready")
    cluster.kill_server()
    try:
        late = on_pods(jobs, "echo late")
        eventually(lambda: "the compute target cluster does not answer" in steps(jobs, late)[-1][1])
        shown = jobs.house.shoal("targets", check=False)
        assert shown.returncode == 1 and "Unavailable" in shown.stdout, shown.stdout
        assert jobs.describe(running)["TrainingJobStatus"] == "InProgress"
    finally:
        cluster.start_server()
    jobs.completed(late)
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    assert jobs.wait(running)["TrainingJobStatus"] == "Stopped"


def test_a_node_that_fails_is_retried(jobs, cluster):
    name = cluster_faults.ends_at_its_second_attempt(jobs, functools.partial(on_pods, jobs), "kubernetes/node")
    [pod] = running_pods(cluster)
    node = cluster.node_of(pod)
    cluster.kill_node(node)
    try:
        jobs.completed(name)
        assert any("was silent" in text or "node" in text for _, text in steps(jobs, name)), steps(jobs, name)
    finally:
        cluster.start_node(node)
        cluster.until_ready()


def test_an_evicted_pod_and_a_preempted_one_interrupt_spot_training(jobs, cluster):
    name = on_pods(jobs, WAITS, instances=3, kind="ml.c5.2xlarge", **SPOT)
    jobs.saying(name, "ready")
    cluster.evict(running_pods(cluster)[0])
    interruptions = lambda: [status for status, _ in steps(jobs, name)].count("Interrupted")
    is_over = lambda: jobs.describe(name)["TrainingJobStatus"] != "InProgress"
    eventually(lambda: interruptions() == 1 or is_over())
    assert interruptions() == 1, steps(jobs, name)
    eventually(lambda: steps(jobs, name)[-1][0] == "Training" or is_over())
    # It has all of each node: a pod of a higher priority needs one of them.
    resources = {"requests": {"cpu": "6"}}
    cluster.add_pod("outside", ["/bin/sleep", "1"], resources, priorityClassName="high")
    eventually(lambda: interruptions() == 2 or is_over())
    assert interruptions() == 2, (steps(jobs, name)[-3:], jobs.describe(name).get("FailureReason"))
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    cluster.delete_pod("outside")
    eventually(lambda: cluster.pods() == {})


def test_trials_share_pods(jobs, cluster):
    tuning = Tuning(jobs)
    definition = tuning.definition(epochs=1)
    definition["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    with cluster.creations() as made:
        tuning.completed(tuning.create(tuning.request(definition, jobs=8, parallel=1)))
    # On a busy machine one may not be cleared yet when the next trial begins.
    assert 1 <= len(made) <= 2, [it["metadata"]["name"] for it in made]


@pytest.fixture
def datasets(cluster, tmp_path):
    """A volume that each node reaches, and a claim for it."""
    place = tmp_path / "datasets"
    (place / "set").mkdir(parents=True)
    (place / "set/a").write_text("content")
    for path in (place / "set", place, *list(place.parents)[:3]):
        path.chmod(0o777)
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "by-hand"}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "datasets"},
            "spec": {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(place)}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "datasets", "namespace": k8s_cluster.NAMESPACE},
            "spec": {**spec, "volumeName": "datasets", "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    return place / "set"


def of_file_system(name, mode="rw", directory="/set"):
    system = {
        "FileSystemId": name,
        "FileSystemAccessMode": mode,
        "FileSystemType": "EFS",
        "DirectoryPath": directory,
    }
    return {"ChannelName": "train", "DataSource": {"FileSystemDataSource": system}}


def test_a_file_system_is_a_claim_that_pods_mount(jobs, cluster, datasets, own_image):
    line = "cd /opt/ml/input/data/train; cat a; echo; {}echo > $SM_CURRENT_HOST"
    written = on_pods(jobs, line.format(""), instances=2, InputDataConfig=[of_file_system(FILE_SYSTEM)])
    read = on_pods(jobs, line.format("! "), InputDataConfig=[of_file_system(READ_ONLY, "ro")])
    jobs.completed(written)
    assert jobs.lines(written, "algo-2") == ["content"]
    names = lambda: sorted(file.name for file in datasets.iterdir())
    assert names() == ["a", "algo-1", "algo-2"]
    jobs.completed(read)
    assert "content" in jobs.lines(read) and "Read-only file system" in "".join(jobs.lines(read))
    # A program in an image of the user's own sees the same.
    both = [of_file_system(FILE_SYSTEM), {**of_file_system(READ_ONLY, "ro"), "ChannelName": "test"}]
    line = "cd /opt/ml/input/data; cat train/a test/a; touch train/own; ! touch test/refused"
    cluster.images({"registry.example/mine:1": own_image})
    jobs.completed(of_image(jobs, "registry.example/mine:1", line, InputDataConfig=both))
    assert names() == ["a", "algo-1", "algo-2", "own"]

    failed = on_pods(jobs, "true", InputDataConfig=[of_file_system(FILE_SYSTEM, directory="/none")])
    assert "/mnt/shoal/rw/fs-0123456a/none" in jobs.failed(failed)
    refused = jobs.sagemaker.exceptions.ClientError
    with pytest.raises(refused, match="mounted read-only"):
        on_pods(jobs, "true", InputDataConfig=[of_file_system(READ_ONLY)])
    with pytest.raises(refused, match="file_systems of \\[target.cluster\\]"):
        on_pods(jobs, "true", InputDataConfig=[of_file_system("fs-0123456d")])
    with pytest.raises(refused, match="there is no PersistentVolumeClaim none in namespace shoal"):
        on_pods(jobs, "true", InputDataConfig=[of_file_system(MISSING)])


def test_what_pods_name_and_is_not_there_is_refused(jobs, cluster):
    refused = jobs.sagemaker.exceptions.ClientError
    for kind, why in [("ml.m5.large", "no PriorityClass with name none"), ("ml.m5.xlarge", 'serviceaccount "none"')]:
        with pytest.raises(refused, match=f'ValidationException.*"{kind}".*refused the job.*{why}'):
            on_pods(jobs, "true", kind=kind)
    shown = lambda: jobs.house.shoal("targets").stdout
    eventually(lambda: "Kueue is not installed, so queue = queue has no effect" in shown())
    jobs.completed(on_pods(jobs, "true", kind="ml.m5.2xlarge"))
    cluster.apply(k8s_cluster.LOCAL_QUEUES)
    queues = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{k8s_cluster.NAMESPACE}/localqueues"
    eventually(lambda: cluster.api.find(queues))
    eventually(lambda: "there is no LocalQueue queue in namespace shoal" in shown())
    # The other type was found to be fine within the last minute.
    with pytest.raises(refused, match="there is no LocalQueue queue in namespace shoal"):
        on_pods(jobs, "true", kind="ml.m5.4xlarge")
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    cluster.apply({**queue, "metadata": {"name": "queue", "namespace": k8s_cluster.NAMESPACE}})
    eventually(lambda: "pods of Shoal" in shown() and "LocalQueue" not in shown())
    created = []

    def create():
        with contextlib.suppress(refused):
            created.append(on_pods(jobs, "true", kind="ml.m5.4xlarge"))
        return created

    eventually(create)
    jobs.completed(created[0])
    cluster.api.call("DELETE", path_of(k8s_cluster.LOCAL_QUEUES))


@pytest.fixture
def volume(cluster, tmp_path):
    """A place for the server's data that each node reaches, and which the server's user may write."""
    place = tmp_path / "data"
    place.mkdir()
    for path in (place, *list(place.parents)[:3]):
        path.chmod(0o755)
    shutil.chown(place, 10001, 10001)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "data"},
            "spec": {
                "capacity": {"storage": "50Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(place)},
            },
        }
    )
    return place


def test_a_server_whose_pod_is_deleted_takes_its_jobs_up_again(cluster, volume):
    program = {"root": "/", "files": {"/usr/local/bin/shoal": str(SHOAL)}, "entrypoint": ["/usr/local/bin/shoal"]}
    cluster.images({"shoal:0.1.0": program, "shoal-static:0.1.0": program})
    cluster.apply(*k8s_cluster.manifest())
    server = Server(cluster, volume)
    eventually(server.is_up)
    first = server.object()
    jobs = Jobs(server)
    running = jobs.command("echo ready; until [ -e /tmp/go ]; do sleep 0.1; done; sleep 3; echo gone on")
    jobs.saying(running, "ready")
    workers = {it["metadata"]["uid"] for name, it in cluster.pods().items() if name != "shoal-0"}
    cluster.api.delete(f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/pods/shoal-0")
    eventually(lambda: server.is_up() and server.object()["metadata"]["uid"] != first["metadata"]["uid"])
    assert server.object()["status"]["podIP"] != first["status"]["podIP"]
    jobs.connect()
    touch = ["jobs", "exec", running, "--", "/bin/touch", "/tmp/go"]
    eventually(lambda: jobs.house.shoal(*touch, check=False).returncode == 0)
    assert workers == {it["metadata"]["uid"] for name, it in cluster.pods().items() if name != "shoal-0"}
    jobs.completed(running)
    assert jobs.lines(running) == ["ready", "gone on"]
