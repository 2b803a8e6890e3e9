"""Jobs on a real Slurm cluster, beside this machine: how they get there, wait, fail and are found
again. What they compute there is shown by the tests that run with SHOAL_TEST_TARGET=slurm.
"""

import contextlib
import copy
import functools
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess

import cluster_faults
import pytest
import slurm_cluster
import traces
from cluster_faults import WAITS, message, steps
from house import SHOAL, House, eventually
from jobs import Jobs
from test_team import Key, refusal
from tuning_jobs import Tuning

TAG = [{"Key": "shoal:target", "Value": "cluster"}]
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
}
TYPES = """
[target.cluster.types]
"ml.m5.xlarge" = { nodes = "exclusive", partition = "high" }
"ml.c5.xlarge" = {}
"ml.c5.2xlarge" = { partition = "none-such" }
"ml.m4.xlarge" = { args = ["--mem=999G"] }
"ml.g4dn.xlarge" = { gres = "gpu:1", args = ["--nodelist=n1"] }
"""


@pytest.fixture(scope="module")
def cluster(start_cluster):
    return start_cluster(slurm_cluster, nodes=3, own_caches=True, gpus=2)


#: At this path on all nodes.
FILE_SYSTEM = "fs-0123456a"


@pytest.fixture(scope="module")
def jobs(cluster):
    settings = cluster.settings().replace('default_target = "cluster"', "") + f'file_systems = ["{FILE_SYSTEM}"]\n'
    house = House(settings=f'{settings}{TYPES}[file_systems]\n{FILE_SYSTEM} = "{cluster.root}/lustre"\n')
    yield Jobs(house)
    house.close()


def slurm(jobs, line, instances=1, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instances=instances, instance_type=kind, **more)


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


def test_jobs_on_one_node_have_the_gpus_that_slurm_gives_them(jobs):
    """The log has which device nodes the agent looks for: there are none here."""
    names = [slurm(jobs, WAITS, kind="ml.g4dn.xlarge") for _ in range(2)]
    for name in names:
        jobs.saying(name, "ready")
    lines = [line for name in names for line in jobs.logs(name)["algo-1"]]
    found = [line.split("this machine has no ")[1].split(":")[0] for line in lines if "this machine has no " in line]
    assert sorted(found) == ["/dev/nvidia0", "/dev/nvidia1"], lines
    for name in names:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        jobs.wait(name)


def test_a_file_system_that_the_nodes_have(jobs, cluster):
    place = cluster.root / "lustre/set"
    place.mkdir(parents=True)
    (place / "a").write_text("content")
    place.chmod(0o777)
    system = {
        "FileSystemId": FILE_SYSTEM,
        "FileSystemAccessMode": "rw",
        "FileSystemType": "FSxLustre",
        "DirectoryPath": "/set",
    }
    channel = {"ChannelName": "train", "DataSource": {"FileSystemDataSource": system}}
    line = "cd /opt/ml/input/data/train; cat a; echo; cat /proc/sys/kernel/hostname > $SM_CURRENT_HOST"
    name = slurm(jobs, line, instances=2, InputDataConfig=[channel])
    jobs.completed(name)
    assert jobs.lines(name, "algo-2") == ["content"]
    assert sorted(file.name for file in place.iterdir()) == ["a", "algo-1", "algo-2"]
    channel["DataSource"]["FileSystemDataSource"] = {**system, "FileSystemId": "fs-0123456b"}
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="file_systems of \\[target.cluster\\]"):
        slurm(jobs, line, InputDataConfig=[channel])


def test_trials_share_an_allocation(jobs, cluster):
    known = lambda: {line for line in cluster.call("squeue", "-h", "--states=all", "-o", "%A").split()}
    before = known()
    tuning = Tuning(jobs)
    definition = tuning.definition(epochs=1)
    definition["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    name = tuning.create(tuning.request(definition, jobs=8, parallel=1))
    tuning.completed(name)
    # On a busy machine one may not be cleared yet when the next trial begins.
    assert len(known() - before) <= 4, cluster.call("squeue", "--states=all")


def test_the_command_line_trains_there(jobs, tmp_path):
    (tmp_path / "train.py").write_text("import os; print('on', os.uname().nodename)")
    words = ["train", "--target", "cluster", "--instance-type", "ml.c5.xlarge", "--name", "by-command", "train.py"]
    jobs.house.shoal(*words, cwd=tmp_path)
    assert jobs.lines("by-command") == ["on algo-1"]
    starts = [it["StatusMessage"] for it in jobs.describe("by-command")["SecondaryStatusTransitions"]]
    assert any("on compute target cluster" in text for text in starts), starts


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
    cluster_faults.a_restored_copy_and_its_original_leave_each_other_alone(jobs, slurm, lambda: queue(cluster))


def test_a_copy_of_the_directory_is_refused_beside_its_original(jobs):
    data, copied = jobs.house.data, jobs.house.root / "copied"
    subprocess.run(["cp", "-a", data, copied], check=True)
    refused = jobs.house.shoal("serve", "--data-dir", copied, "--listen", "127.0.0.1:0", check=False, timeout=60)
    assert refused.returncode == 2 and f"is a copy of {data} and has its id" in refused.stderr, refused


def test_a_server_that_takes_over_has_the_jobs_of_the_lost_one(jobs, cluster):
    @contextlib.contextmanager
    def no_room():
        options = ["--parsable", "--output=/dev/null", "-N2", "--exclusive"]
        outside = cluster.call("sbatch", *options, "--wrap", "sleep 1000").strip()
        try:
            yield lambda line: slurm(jobs, line, instances=2), "Waiting in the queue of compute target cluster"
        finally:
            cluster.call("scancel", outside)

    create = functools.partial(slurm, jobs)
    cluster_faults.is_taken_over(jobs, create, lambda: queue(cluster), no_room)


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
    name = cluster_faults.ends_at_its_second_attempt(jobs, functools.partial(slurm, jobs), "slurm/node")
    eventually(lambda: len(queue(cluster)) == 1)
    node = int(cluster.call("squeue", "-h", "-o", "%N").strip()[1:])
    cluster.kill_node(node)
    try:
        jobs.completed(name)
        messages = [text for _, text in steps(jobs, name)]
        assert any(f"node n{node} of Slurm job" in text and "NODE_FAIL" in text for text in messages), messages
    finally:
        cluster.start_node(node)


def test_an_agent_that_is_killed_is_retried(jobs):
    name = cluster_faults.ends_at_its_second_attempt(jobs, functools.partial(slurm, jobs), "slurm/agent")
    (agent,) = traces.agents(jobs.house).values()
    os.kill(agent, signal.SIGKILL)
    jobs.completed(name)
    assert cluster_faults.attempts(jobs, name) == 2


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


ALGORITHM = {
    "AlgorithmSpecification": {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/true"],
    }
}

#: Whose jobs those of a key are; these users are on each Debian and own nothing.
USERS = {"anna": "games", "ben": "mail"}


@pytest.fixture(scope="module")
def team(cluster):
    """A server whose jobs are those of the cluster's users: its owner's, and of some keys."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    if not shutil.which("runuser") or not known.issuperset(USERS.values()):
        pytest.skip(f"needs runuser and the users {', '.join(USERS.values())}")
    # These users cannot read the build's directory.
    shutil.copy(SHOAL, cluster.root / "shoal")
    for node in cluster.numbers():
        (cluster.root / f"cache-n{node}").chmod(0o1777)
    names = ", ".join(f'{key} = "{user}"' for key, user in USERS.items())
    settings = cluster.settings().replace(f'"{cluster.cache}"', f'"{cluster.cache}/{{user}}"')
    house = House(
        settings=f"""{settings}
program = "{cluster.root}/shoal"
submit_as = ["runuser", "-u", "{{user}}", "--"]
users = {{ {names} }}
"""
    )
    team = {"owner": Jobs(house)}
    for name in (*USERS, "no-such-user"):
        flags = ("--role", "user", "--read", "s3://tests/", "--write", "s3://tests/", "--json")
        team[name] = copy.copy(team["owner"])
        team[name].key = Key(house, json.loads(house.shoal("keys", "add", name, *flags).stdout))
    connect(team)
    yield team
    house.close()


def connect(team):
    team["owner"].connect()
    for jobs in team.values():
        if jobs is not team["owner"]:
            jobs.sagemaker, jobs.s3 = (jobs.key.client(service) for service in ("sagemaker", "s3"))
            jobs.logs_client = jobs.key.client("logs")


def users_of(cluster, job):
    """As whom it was submitted, once for each allocation."""
    lines = cluster.call("squeue", "--states=all", "-h", "-o", "%u %k").splitlines()
    return [line.split()[0] for line in lines if line.split("|")[0].endswith(f"/{job}")]


def running(cluster):
    return sorted(cluster.call("squeue", "-h", "-o", "%u").split())


def test_jobs_are_those_of_their_creators_users(team, cluster):
    anna, ben, house = team["anna"], team["ben"], team["owner"].house
    kept = {"ResourceConfig": {"VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": 60}}
    of_anna = anna.command("echo trained", **kept)
    anna.completed(of_anna)
    assert users_of(cluster, of_anna) == ["games"] and anna.lines(of_anna) == ["trained"]
    # If her allocation is kept, it has no job of his.
    of_ben = ben.command("true", **kept)
    ben.completed(of_ben)
    again = anna.command("true", **kept)
    anna.completed(again)
    assert users_of(cluster, of_ben) == ["mail"] and users_of(cluster, again) in ([], ["games"])
    of_owner = team["owner"].command("true")
    team["owner"].completed(of_owner)
    assert users_of(cluster, of_owner) == ["root"]
    # What an agent has on its node is its user's.
    owners = {
        path.name: path.owner() for node in cluster.numbers() for path in (cluster.root / f"cache-n{node}").iterdir()
    }
    assert {"games": "games", "mail": "mail"}.items() <= owners.items()

    error = refusal(team["no-such-user"].sagemaker.create_training_job, **anna.request("x") | ALGORITHM)
    assert error["Code"] == "ValidationException" and "user no-such-user does not exist" in error["Message"], error
    shown = house.shoal("targets").stdout
    assert "no jobs of no-such-user are taken: sbatch cannot be run as user no-such-user: runuser: " in shown, shown
    assert "of anna are" not in shown


def test_a_server_that_was_killed_finds_and_ends_what_is_its_users(team, cluster):
    ben, house = team["ben"], team["owner"].house
    of_ben = ben.command(WAITS, instances=2)
    ben.saying(of_ben, "ready")
    house.stop(signal.SIGKILL)
    # As one that was submitted when the server was killed, and is in no record.
    name = f"--job-name=shoal-{house.id}-gone-1"
    as_anna = ["runuser", "-u", "games", "--", "sbatch", "--parsable", "--output=/dev/null", "--chdir=/", name]
    assert cluster.call(*as_anna, "--wrap", "sleep 1000").strip()
    house.start()
    connect(team)
    eventually(lambda: running(cluster) == ["mail"])
    assert ben.describe(of_ben)["SecondaryStatus"] == "Training"
    ben.sagemaker.stop_training_job(TrainingJobName=of_ben)
    assert ben.wait(of_ben)["TrainingJobStatus"] == "Stopped"
    eventually(lambda: running(cluster) == [])


def test_slurmrestd_gets_a_token_of_each_user(team, cluster):
    anna, house = team["anna"], team["owner"].house
    file = house.data / "shoal.toml"
    token = 'token_command = ["scontrol", "token", "username={user}", "lifespan=600"]'
    house.stop()
    file.write_text(f'{file.read_text()}rest = "{cluster.rest}"\nuser = "root"\n{token}\n')
    house.start()
    connect(team)
    of_anna, of_owner = anna.command(WAITS), team["owner"].command("true")
    team["owner"].completed(of_owner)
    anna.saying(of_anna, "ready")
    assert (users_of(cluster, of_anna), users_of(cluster, of_owner)) == (["games"], ["root"])
    anna.sagemaker.stop_training_job(TrainingJobName=of_anna)
    assert anna.wait(of_anna)["TrainingJobStatus"] == "Stopped"
