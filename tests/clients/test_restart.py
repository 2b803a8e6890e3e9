"""A server that dies loses nothing, and touches nothing that runs."""

import hashlib
import signal
import subprocess
import time

import traces
from house import eventually, free_port
from jobs import Jobs

COUNT = "i=1; while [ $i -le 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo m > /opt/ml/model/$(hostname); echo loss=2"
LINES = [f"line {i}" for i in range(1, 401)] + ["loss=2"]


def again(house, jobs):
    """The server is killed and another one takes the directory."""
    house.stop(signal.SIGKILL)
    house.start()
    jobs.connect()


def test_a_running_job_outlives_the_server_many_times(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script(COUNT, instances=2, metrics=[("loss", r"loss=(\S+)")])
    jobs.saying(name, "line 3", "algo-2")
    ranks = set(traces.agents(house).values())
    for _ in range(3):
        again(house, jobs)
    assert set(traces.agents(house).values()) == ranks, "no agent was started again"
    it = jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        assert jobs.lines(name, host) == LINES
    assert jobs.metrics(name) == {"loss": 2}
    assert jobs.artifact(name) == {"algo-1": b"m\n", "algo-2": b"m\n"}
    assert [transition["Status"] for transition in it["SecondaryStatusTransitions"]].count("Training") == 1


def test_a_start_cut_short_is_completed(new_house):
    house = new_house()
    jobs = Jobs(house)
    # Some of eight agents have started when the server dies, others have not; which ones differs
    # from one round to the next.
    for pause in (0, 0.01, 0.02, 0.03, 0.05):
        name = jobs.script("echo once; echo m > /opt/ml/model/$(hostname)", instances=8)
        time.sleep(pause)
        again(house, jobs)
        jobs.completed(name)
        for host in (f"algo-{number}" for number in range(1, 9)):
            said = [line for line in jobs.lines(name, host) if not line.startswith("[shoal]")]
            assert said == ["once"], (pause, host)
        assert len(jobs.artifact(name)) == 8


def test_a_flood_of_lines_comes_through_whole(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script("seq 1 50000; echo ready; sleep 1; seq 50001 100000")
    jobs.saying(name, "100")
    again(house, jobs)
    jobs.completed(name)
    assert [line for line in jobs.lines(name) if line != "ready"] == [str(i) for i in range(1, 100_001)]


def test_a_model_arrives_whole_though_the_server_dies_meanwhile(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script("head -c 60000000 /dev/urandom > /opt/ml/model/weights; sha256sum < /opt/ml/model/weights")
    for _ in range(2):
        eventually(lambda: jobs.describe(name)["SecondaryStatus"] in ("Uploading", "Completed"))
        again(house, jobs)
    jobs.completed(name)
    assert jobs.lines(name) == [f"{hashlib.sha256(jobs.artifact(name)['weights']).hexdigest()}  -"]


def test_a_job_may_end_while_nobody_listens(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script("echo ready; sleep 1; echo end; echo m > /opt/ml/model/m")
    jobs.saying(name, "ready")
    house.stop(signal.SIGKILL)
    eventually(lambda: not any("run.sh" in " ".join(words) for words in traces.processes(house).values()))
    house.start()
    jobs.connect()
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "end"] and jobs.artifact(name) == {"m": b"m\n"}


def test_an_orderly_end_leaves_jobs_running_too(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script("echo ready; sleep 1; echo end")
    jobs.saying(name, "ready")
    house.stop()
    house.start()
    jobs.connect()
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "end"]


def test_what_waits_is_not_forgotten(new_house):
    house = new_house("--instances", "1")
    jobs = Jobs(house)
    first = jobs.script("echo ready; sleep 1")
    jobs.saying(first, "ready")
    second = jobs.script("true")
    again(house, jobs)
    jobs.completed(first)
    jobs.completed(second)


def test_a_stop_is_not_forgotten(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.script(
        "trap 'sleep 1; echo m > /opt/ml/model/m; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
    )
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    again(house, jobs)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.artifact(name) == {"m": b"m\n"}


def test_what_was_acknowledged_is_there(new_house):
    house = new_house()
    jobs = Jobs(house)
    key = house.variables_for_clients()["AWS_SECRET_ACCESS_KEY"]
    jobs.put("kept.txt", "kept")
    name = jobs.script("echo hello; echo m > /opt/ml/model/m")
    before = jobs.completed(name)
    again(house, jobs)
    assert house.variables_for_clients()["AWS_SECRET_ACCESS_KEY"] == key
    after = jobs.describe(name)
    assert {**after, "ResponseMetadata": 0} == {**before, "ResponseMetadata": 0}
    assert jobs.lines(name) == ["hello"] and jobs.artifact(name) == {"m": b"m\n"}
    assert jobs.s3.get_object(Bucket="tests", Key="kept.txt")["Body"].read() == b"kept"


def test_a_second_server_is_told_who_has_the_directory(house):
    second = house.shoal("serve", "--listen", "127.0.0.1:0", check=False, timeout=120)
    assert second.returncode == 1
    assert str(house.pid) in second.stderr


def test_of_many_servers_on_one_directory_one_serves(new_house):
    house = new_house(port=free_port())
    jobs = Jobs(house)
    name = jobs.script("echo ready; sleep 3; echo end")
    jobs.saying(name, "ready")
    house.stop(signal.SIGKILL)
    command = [str(house.binary), "serve", "--data-dir", str(house.data), "--listen", f"127.0.0.1:{house.port}"]
    # A file each: what processes write to one at the same time is mixed.
    logs = [house.root / f"server-{number}.log" for number in range(4)]
    started = []
    for path in logs:
        with open(path, "wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
    eventually(lambda: sum(process.poll() is None for process in started) == 1)
    (house.process,) = [process for process in started if process.poll() is None]
    house.pid = house.process.pid
    assert {process.poll() for process in started} == {None, 1}
    texts = [path.read_text() for path in logs]
    assert sum(f"in use by process {house.pid}" in text for text in texts) == 3, texts
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "end"]
