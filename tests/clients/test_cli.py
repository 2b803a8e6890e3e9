"""The command line: train, jobs, doctor, config; its output for people and for programs, its
exit codes.
"""

import json
import os
import signal
import subprocess

import data
import pytest
from house import House, eventually, free_port

# Exit codes as `shoal --help` documents them.
OK, FAILED, USAGE, UNREACHABLE, STOPPED, NOT_FOUND = range(6)


def run(house, *arguments, code=OK, **options):
    """Output of a command that must end with this code."""
    done = house.shoal(*arguments, check=False, **options)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def trained(jobs, house, tmp_path_factory):
    """Name of a job that `shoal train` has run on local files with two instances."""
    directory = tmp_path_factory.mktemp("cli")
    (directory / "train").mkdir()
    for part in range(2):
        (directory / f"train/{part}.csv").write_text(data.as_csv(data.rows(100, part)))
    done = run(
        house, "train", "--name", "by-hand", "--image", "xgboost", "--instances", "2", "--channel", "train=train,sharded,text/csv",
        "--hp", "num_round=3", "--hp", "objective=binary:logistic", "--json", cwd=directory,
    )  # fmt: skip
    assert json.loads(done.stdout)["TrainingJobStatus"] == "Completed"
    return "by-hand"


def test_what_train_ran(jobs, trained):
    it = jobs.describe(trained)
    assert it["ResourceConfig"]["InstanceCount"] == 2
    assert it["HyperParameters"] == {"num_round": "3", "objective": "binary:logistic"}
    assert it["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    bucket, key = it["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").split("/", 1)
    assert jobs.s3.head_object(Bucket=bucket, Key=key)["ContentLength"] > 0


def test_jobs_list(house, trained):
    (summary,) = json.loads(run(house, "jobs", "list", "--name", trained, "--json").stdout)
    assert (summary["TrainingJobName"], summary["TrainingJobStatus"]) == (trained, "Completed")
    assert trained in run(house, "jobs", "list", "--status", "Completed", "--limit", "100").stdout
    assert trained not in run(house, "jobs", "list", "--status", "Failed").stdout
    assert trained in run(house, "jobs", "list", "--status", "completed", "--limit", "100").stdout
    assert "--checkpoints" in run(house, "jobs", "checkpoints", trained).stdout


def test_jobs_show(house, trained):
    assert json.loads(run(house, "jobs", "show", trained, "--json").stdout)["TrainingJobName"] == trained
    shown = run(house, "jobs", "show", trained).stdout
    for text in (trained, "Completed", "train:logloss", "model.tar.gz"):
        assert text in shown, shown


def test_jobs_logs(house, trained):
    both = run(house, "jobs", "logs", trained).stdout
    assert "#011train-logloss:" in both and "algo-2" in both
    lines = [
        json.loads(line)
        for line in run(house, "jobs", "logs", trained, "--json", "--host", "algo-2").stdout.splitlines()
    ]
    assert lines and {line["host"] for line in lines} == {"algo-2"}
    assert all(line["timestamp"] > 1.7e12 and line["message"] is not None for line in lines)


def test_train_follows_a_program_and_its_end(house):
    done = run(house, "train", "--logs", "--", "sh", "-c", "echo hello from inside; echo value: 7", "sh")
    assert "hello from inside" in done.stdout + done.stderr
    done = run(house, "train", "--logs", "--", "sh", "-c", "echo trouble >&2; exit 3", code=FAILED)
    assert "trouble" in done.stdout + done.stderr and "exit code: 3" in done.stdout + done.stderr


def test_a_failure_is_told_in_full_once(house):
    script = "printf 'Traceback\\n  line 7\\nValueError: no\\n' > /opt/ml/output/failure; exit 1"
    done = run(house, "train", "--name", "long-reason", "--", "sh", "-c", script, code=FAILED)
    assert done.stdout.count("ValueError") == 1 and "ValueError" not in done.stderr, done
    assert run(house, "jobs", "show", "long-reason").stdout.count("Traceback") == 1


def test_flags_reach_the_program(jobs, house):
    command = [
        "train",
        "--name",
        "flags",
        "--env",
        "COLOUR=red",
        "--hp",
        "a=b=c",
        "--metric",
        r"loss=loss: (\S+)",
        "--max-runtime",
        "50",
    ]
    run(house, *command, "--instance-type", "ml.t3.medium", "--", "sh", "-c", "echo $COLOUR $SM_HP_A; echo loss: 4")
    it = jobs.describe("flags")
    assert jobs.lines("flags") == ["red b=c", "loss: 4"] and jobs.metrics("flags") == {"loss": 4}
    assert (
        it["StoppingCondition"]["MaxRuntimeInSeconds"] == 50 and it["ResourceConfig"]["InstanceType"] == "ml.t3.medium"
    )


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_request_files(jobs, house, tmp_path, form):
    algorithm = {"TrainingImage": "shoal/host", "ContainerEntrypoint": ["true"]}
    texts = {
        "json": json.dumps({"TrainingJobName": "x", "AlgorithmSpecification": algorithm, "Environment": {"A": "1"}}),
        "yaml": "TrainingJobName: x\nAlgorithmSpecification:\n  TrainingImage: shoal/host\n  ContainerEntrypoint: ['true']\nEnvironment: {A: 1}\n",
    }
    path = tmp_path / f"job.{form}"
    path.write_text(texts[form])
    run(house, "train", str(path), "--name", f"from-{form}")
    assert jobs.describe(f"from-{form}")["Environment"] == {"A": "1"}
    run(house, "train", "-", "--name", f"from-stdin-{form}", input=texts[form])
    assert jobs.describe(f"from-stdin-{form}")["TrainingJobStatus"] == "Completed"


def test_a_dry_run_sends_nothing(house):
    request = json.loads(run(house, "train", "--dry-run", "--name", "never", "--", "true").stdout)
    assert request["TrainingJobName"] == "never" and request["AlgorithmSpecification"]["ContainerEntrypoint"] == [
        "true"
    ]
    run(house, "jobs", "show", "never", code=NOT_FOUND)


def test_detach_stop_and_follow(jobs, house):
    script = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
    answer = json.loads(
        run(house, "train", "--detach", "--json", "--name", "detached", "--", "sh", "-c", script).stdout
    )
    assert answer["TrainingJobArn"].endswith("/detached")
    jobs.saying("detached", "ready")
    follower = subprocess.Popen(
        [str(house.binary), "jobs", "logs", "-f", "detached"],
        stdout=subprocess.PIPE,
        text=True,
        env={**house.variables, "SHOAL_DATA_DIR": str(house.data)},
    )
    # What Shoal itself has to say may come first.
    assert any("ready" in line for line in iter(follower.stdout.readline, ""))
    run(house, "jobs", "stop", "detached", "--wait")
    rest, _ = follower.communicate(timeout=240)
    assert "bye" in rest and follower.returncode == STOPPED
    assert jobs.describe("detached")["TrainingJobStatus"] == "Stopped"


def test_watchers_wait_for_a_server_that_is_away(tmp_path):
    house = House(port=free_port())
    watchers = []

    def log_of(number):
        return (tmp_path / f"{number}.log").read_text()

    try:
        # Lines come before, while and after the server is away.
        program = ["--", "sh", "-c", "for i in $(seq 1 40); do echo line $i; sleep 0.25; done"]
        for arguments in (["train", "--logs", "--name", "outlives", *program], ["jobs", "logs", "-f", "outlives"]):
            with open(tmp_path / f"{len(watchers)}.log", "wb") as log:
                watchers.append(
                    subprocess.Popen(house.command(*arguments), stdout=log, stderr=log, env=house.environment)
                )
            eventually(lambda: "line 3" in log_of(len(watchers) - 1))
        house.stop(signal.SIGKILL)
        for number in range(2):
            eventually(lambda: "the server is away" in log_of(number))
        house.start()
        for number, watcher in enumerate(watchers):
            code, text = watcher.wait(60), log_of(number)
            assert code == OK and text.count("the server is away") == 1, text
            assert [line for line in text.splitlines() if line.startswith("line ")] == [
                f"line {i}" for i in range(1, 41)
            ], text
    finally:
        for watcher in watchers:
            watcher.kill()
        house.close()


def test_signals_are_answered():
    house = House()
    try:
        run(house, "train", "--detach", "--name", "goes-on", "--", "sleep", "60")
        follower = subprocess.Popen(
            house.command("jobs", "logs", "-f", "goes-on"), stderr=subprocess.PIPE, text=True, env=house.environment
        )
        # It listens for signals when it has its second thread.
        eventually(lambda: len(os.listdir(f"/proc/{follower.pid}/task")) > 1)
        follower.send_signal(signal.SIGINT)
        assert "goes-on goes on; `shoal jobs logs -f goes-on` follows it" in follower.communicate(timeout=120)[1]
        assert follower.returncode == -signal.SIGINT
        house.stop()
        assert "stopping; 1 training job goes on" in house.log.read_text()
        assert "no server answers" in run(house, "env").stderr
        house.start()
        run(house, "jobs", "stop", "goes-on", "--wait")
    finally:
        house.close()


def test_typing_errors_in_request_files(house, tmp_path):
    (tmp_path / "job.yaml").write_text("TrainingJobNam: x\n")
    said = run(house, "train", str(tmp_path / "job.yaml"), code=USAGE).stderr
    assert "job.yaml" in said and "TrainingJobNam;" in said and "did you mean TrainingJobName?" in said


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["train", "--image", "no-such-image"], FAILED, "trainingImage"),
        (["train", "--channel", "train=/no/such/file", "--", "true"], FAILED, "/no/such/file"),
        (["train", "--channel", "train", "--", "true"], USAGE, "--channel"),
        (["train"], USAGE, "what shall be trained"),
        (["train", "--hp", "x", "--", "true"], USAGE, "--hp"),
        (["train", "/no/such/file.json"], FAILED, "/no/such/file.json"),
        (["train", "--channel", "train=s3://tests/no/such/prefix/", "--", "true"], FAILED, "no/such/prefix"),
        (["jobs", "show", "nobody-knows-it"], NOT_FOUND, "nobody-knows-it"),
        (["jobs", "logs", "nobody-knows-it"], NOT_FOUND, "nobody-knows-it"),
        (["jobs", "stop", "nobody-knows-it"], NOT_FOUND, "nobody-knows-it"),
        (["jobs", "list", "--status", "Sleeping"], USAGE, "Sleeping"),
        (["jobs", "show", "nobody-knows-it"], NOT_FOUND, "there is no training job nobody-knows-it"),
        (["console", "nobody-knows-it"], NOT_FOUND, "there is no training or tuning job nobody-knows-it"),
        (["jobs", "checkpoints", "nobody-knows-it"], NOT_FOUND, "there is no training job nobody-knows-it"),
        (["jobs", "list", "--limit", "0"], USAGE, "--limit"),
        (["serve", "--port", "47811"], USAGE, "use --listen 127.0.0.1:47811"),
        (["train", "--image", "xgboost", "python3", "train.py"], USAGE, "behind `--`"),
        (["trian"], USAGE, "train"),
        (["serve", "--memory", "much"], USAGE, "memory"),
        (["exec", "--", "/no/such/program"], FAILED, "/no/such/program"),
        ([], USAGE, "Usage"),
    ],
)
def test_mistakes(house, arguments, code, said):
    done = run(house, *arguments, code=code)
    assert said in done.stderr and "panicked" not in done.stderr, done.stderr
    assert done.stdout == ""


def test_no_server(house, tmp_path):
    (tmp_path / "data").mkdir()
    environment = {**house.variables, "SHOAL_DATA_DIR": str(tmp_path / "data"), "SHOAL_LISTEN": "127.0.0.1:9"}
    for arguments in (["jobs", "list"], ["env"], ["exec", "--", "true"]):
        done = subprocess.run([str(house.binary), *arguments], text=True, capture_output=True, env=environment)
        assert done.returncode in (FAILED, UNREACHABLE) and "shoal serve" in done.stderr, (arguments, done)


def test_settings_say_whence_they_come(house, tmp_path):
    (tmp_path / "shoal.toml").write_text('region = "eu-central-1"\naccount = "210987654321"\n')
    environment = {**house.variables, "SHOAL_DATA_DIR": str(tmp_path), "SHOAL_ACCOUNT": "111122223333"}
    command = [str(house.binary), "config", "--json", "--grace-s", "9"]
    found = json.loads(subprocess.run(command, check=True, text=True, capture_output=True, env=environment).stdout)
    assert found["region"]["value"] == "eu-central-1" and "shoal.toml" in found["region"]["origin"]
    assert found["account"]["value"] == "111122223333" and "SHOAL_ACCOUNT" in found["account"]["origin"]
    assert int(found["grace_s"]["value"]) == 9 and "flag" in found["grace_s"]["origin"]
    assert found["listen"]["origin"] == "default" and found["server"]["value"] is None
    running = json.loads(run(house, "config", "--json").stdout)["server"]
    assert running == {"value": (house.data / "address").read_text().strip(), "origin": "running"}


def test_a_server_does_not_start_with_an_engine_that_is_none(house):
    said = run(house, "serve", "--data-dir", str(house.root / "never"), "--engine", "dokcer", code=1).stderr
    assert 'the setting `engine` is "dokcer", and there is no such command on PATH' in said


def test_the_doctor_reads_what_a_server_would(house):
    (house.root / "sick").mkdir()
    (house.root / "sick" / "instance-types.txt").write_text("ml.m5.large 2 two 0 - 1\n")
    (house.root / "sick" / "environments.txt").write_text("nonsense\n")
    said = run(house, "doctor", "--data-dir", str(house.root / "sick"), "--engine", "dokcer", "--json", code=1).stdout
    checks = {check["check"]: check for check in json.loads(said)}
    assert checks["instance types"]["state"] == "missing" and 'memory_gib is "two"' in checks["instance types"]["found"]
    assert checks["scripts' Python"]["state"] == "missing" and "nonsense" in checks["scripts' Python"]["found"]
    assert checks["container engine"]["state"] == "note" and "dokcer" in checks["container engine"]["found"]


def test_the_doctor(house):
    checks = {check["check"]: check for check in json.loads(run(house, "doctor", "--json").stdout)}
    assert (
        checks["server"]["state"] == "ok"
        and house.variables_for_clients()["AWS_ENDPOINT_URL"] in checks["server"]["found"]
    )
    assert {"isolation", "limits", "libxgboost"} <= set(checks)
    assert "import" in checks["Python package"]["found"] and "pip install" in checks["Python package"]["todo"]
    assert all(check["state"] == "ok" or check["todo"] or check["state"] == "note" for check in checks.values())
    assert "isolation" in run(house, "doctor").stdout


def test_colours_and_progress_are_for_terminals(house):
    done = run(house, "train", "--", "true", env={**os.environ, **house.variables, "SHOAL_DATA_DIR": str(house.data)})
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(house, shell):
    assert "shoal" in run(house, "completions", shell).stdout
