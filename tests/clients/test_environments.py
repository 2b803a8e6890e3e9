"""Python environments instead of images: made once, shared, read-only, with what a job requires
on top.
"""

import fcntl
import json
import os
import time

import pytest
from house import House, eventually
from jobs import Jobs
from test_cli import run
from test_script_mode import create
from wheels import wheel

SCIKIT_LEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"


class Environments:
    """A server whose environments come from a house of wheels alone, into a cache of its own."""

    def __init__(self, tmp):
        self.wheels, self.cache = tmp / "wheels", tmp / "cache"
        for name, version, requires in [("alpha", "1.0", None), ("alpha", "2.0", None), ("beta", "1.0", "alpha")]:
            wheel(self.wheels, name, version, requires)
        self.house = House(
            "--wheel-house",
            str(self.wheels),
            variables={"SHOAL_CACHE": str(self.cache), "SHOAL_WHEEL_HOUSE": str(self.wheels)},
        )
        self.jobs = Jobs(self.house)

    def image(self, name, lock):
        file = self.house.root / "lock.txt"
        file.write_text(lock)
        self.house.shoal("image", "add", name, "--python", "3.11,3.12,3.13,3.10", "--lock", str(file))

    def listed(self):
        return [line.split()[0] for line in self.house.shoal("env-cache", "list").stdout.splitlines()[1:]]


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    it = Environments(tmp_path_factory.mktemp("environments"))
    yield it
    it.house.close()


def submit(jobs, image, script, instances=1):
    """Creates a job that runs a script in the image's environment; gives its name."""
    request = jobs.request("environment")
    prefix = f"code/{request['TrainingJobName']}"
    jobs.put(f"{prefix}/train.py", script)
    request["AlgorithmSpecification"] = {
        "TrainingImage": image,
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python", "/opt/ml/input/data/code/train.py"],
    }
    request["InputDataConfig"] = [jobs.channel("code", prefix)]
    request["ResourceConfig"]["InstanceCount"] = instances
    jobs.sagemaker.create_training_job(**request)
    return request["TrainingJobName"]


INSIDE = """
import alpha, os, subprocess, sys
print(alpha.VERSION)
print(subprocess.check_output(["alpha"], text=True).split()[0])
try:
    open(os.path.join(sys.prefix, "evil"), "w")
except OSError as error:
    print(error.strerror)
"""


def test_made_once_for_all_hosts_and_jobs_and_read_only_inside(environments):
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    first = submit(jobs, "team/alpha", INSIDE, instances=2)
    jobs.completed(first)
    hosts = jobs.logs(first)
    for host in ("algo-1", "algo-2"):
        assert jobs.lines(first, host) == ["1.0", "1.0", "Read-only file system"]
    made = [
        line
        for lines in hosts.values()
        for line in lines
        if line.startswith("[shoal] making the environment team/alpha")
    ]
    assert len(made) == 1, hosts
    second = submit(jobs, "team/alpha", INSIDE)
    jobs.completed(second)
    assert not any("environment" in line for line in jobs.logs(second)["algo-1"]), (
        "nothing is made and nobody is waited for"
    )


def test_the_image_of_a_script_follows_from_what_it_imports(environments, tmp_path):
    environments.image("team/imported", "alpha==2.0\nbeta==1.0\n")
    (tmp_path / "train.py").write_text("import beta, sys\nprint(beta.VERSION, sys.argv[1:])\n")
    done = run(environments.house, "train", "--name", "by-import", "--json", "train.py", "--epochs", "3", cwd=tmp_path)
    assert "image team/imported, as train.py imports beta" in done.stderr, done.stderr
    job = json.loads(done.stdout)
    assert (job["TrainingJobStatus"], job["AlgorithmSpecification"]["TrainingImage"]) == ("Completed", "team/imported")
    assert environments.jobs.lines("by-import") == ["1.0 ['--epochs', '3']"]


def test_what_a_job_requires_lies_over_it_and_is_kept(environments):
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    script = INSIDE + "import beta; print(beta.VERSION)\n"
    first = create(jobs, {"train.py": script, "requirements.txt": "# more\nbeta\nalpha==2.0\n"}, image="team/alpha")
    jobs.completed(first)
    assert jobs.lines(first) == ["2.0", "2.0", "Read-only file system", "1.0"]
    assert any(line.startswith("[shoal] installing what the job requires") for line in jobs.logs(first)["algo-1"])
    second = create(
        jobs, {"train.py": script, "requirements.txt": "beta\nalpha==2.0   # the same\n"}, image="team/alpha"
    )
    jobs.completed(second)
    assert not any("installing" in line for line in jobs.logs(second)["algo-1"])


def test_what_would_run_code_outside_of_the_sandbox_fails_the_job(environments):
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    reason = jobs.failed(
        create(jobs, {"train.py": INSIDE, "requirements.txt": "git+https://example.org/evil.git\n"}, image="team/alpha")
    )
    assert 'requirements.txt:1: "git+https://example.org/evil.git" is no requirement of an index' in reason


def test_nothing_is_fetched_for_an_isolated_job(environments, jobs):
    files = {"train.py": "import alpha; print(alpha.VERSION)", "requirements.txt": "alpha==2.0\n"}
    environments.image("team/alpha", "alpha==1.0\n")
    served = create(environments.jobs, files, image="team/alpha", EnableNetworkIsolation=True)
    environments.jobs.completed(served)
    assert environments.jobs.lines(served) == ["2.0"], "the house of wheels serves"
    reason = jobs.failed(create(jobs, files, image=SCIKIT_LEARN, EnableNetworkIsolation=True))
    assert reason.startswith("AlgorithmError: the job has EnableNetworkIsolation, so nothing is fetched for it"), reason
    assert "name a directory of wheels as wheel_house in shoal.toml" in reason


def test_a_requirement_that_is_not_there_is_the_jobs_own_failure(environments):
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    # pip says the name several times, so there is more than a reason has room for: its head and its
    # end stay.
    package = f"no-such-{'x' * 500}==1.0"
    reason = jobs.failed(create(jobs, {"train.py": INSIDE, "requirements.txt": package + "\n"}, image="team/alpha"))
    assert reason.startswith(
        "AlgorithmError: what the job requires could not be installed over the environment team/alpha"
    )
    assert " ... " in reason and reason.endswith(f"{package}, exit code: 1"), reason


def test_what_installs_a_package_is_laid_over_an_environment_that_lacks_it(environments):
    """test_packages.py has one that does not; this house of wheels has nothing for it."""
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    name = create(
        jobs, {"train.py": INSIDE, "setup.py": "raise SystemExit(9)", "requirements.txt": "beta\\"}, image="team/alpha"
    )
    reason = jobs.failed(name)
    assert (
        "could not be installed over the environment team/alpha" in reason
        and "No matching distribution found for" in reason
    ), reason
    assert (
        "[shoal] setup.py needs more than the environment team/alpha has, laid over it: setuptools, wheel"
        in jobs.logs(name)["algo-1"]
    )


def test_a_failed_build_says_what_pip_said_and_leaves_nothing(environments):
    jobs = environments.jobs
    environments.image("team/broken", "no-such-package==1.0\n")
    reason = jobs.failed(submit(jobs, "team/broken", INSIDE))
    assert "the environment team/broken could not be made" in reason and "no-such-package==1.0" in reason
    assert not any(name.startswith("team-broken") for name in environments.listed())


def test_a_job_that_waits_for_an_environment_can_be_stopped(environments):
    jobs = environments.jobs
    environments.image("team/alpha", "alpha==1.0\n")
    jobs.completed(submit(jobs, "team/alpha", INSIDE))
    [name] = [name for name in environments.listed() if name.startswith("team-alpha-") and "-job-" not in name]
    # As another server's agent that makes it.
    with open(environments.cache / "environments" / f"{name}.lock", "r+") as lock:
        eventually(lambda: not fcntl.flock(lock, fcntl.LOCK_EX))
        job = submit(jobs, "team/alpha", INSIDE)
        waiting = "[shoal] waiting for the environment team/alpha, which another instance or job is making"
        eventually(lambda: waiting in jobs.logs(job).get("algo-1", []))
        assert jobs.describe(job)["SecondaryStatus"] == "Downloading"
        jobs.sagemaker.stop_training_job(TrainingJobName=job)
        assert jobs.wait(job)["TrainingJobStatus"] == "Stopped"
    assert jobs.lines(job) == []


def test_images_that_stand_for_nothing_are_refused_at_creation(environments):
    with pytest.raises(
        environments.jobs.sagemaker.exceptions.ClientError, match="is none that this server can run.*shoal image list"
    ):
        submit(environments.jobs, "team/unknown", INSIDE)


def test_the_commands(environments):
    house = environments.house
    environments.image("team/gamma", "alpha==2.0\n")
    rows = [line.split() for line in house.shoal("image", "list").stdout.splitlines()]
    assert rows.index(["team/gamma", "team/gamma", "yours"]) < rows.index(
        ["pytorch-training", "pytorch", "SageMaker's"]
    )
    prepared = house.shoal("env-cache", "prepare", "team/gamma:7")
    assert prepared.stdout.startswith("team/gamma: Python 3.") and "once for this machine" in prepared.stderr
    assert house.shoal("env-cache", "prepare", "team/gamma").stderr == ""
    verified = house.shoal("env-cache", "verify", "team-gamma").stdout
    assert verified.startswith("team-gamma-") and "files are as installed" in verified
    [name] = [name for name in environments.listed() if name.startswith("team-gamma")]
    [module] = (environments.cache / "environments" / name).glob("lib/python3*/site-packages/alpha.py")
    module.chmod(0o644)
    module.write_text("VERSION = 'evil'\n")
    found = house.shoal("env-cache", "verify", "team-gamma", check=False)
    assert found.returncode == 1 and "alpha.py: it is not the file that was installed" in found.stdout
    assert "nothing to remove" in house.shoal("env-cache", "prune", "--older-than", "1d").stdout
    assert f"removed {name}" in house.shoal("env-cache", "prune").stdout
    assert environments.listed() == []
    environments.image("team/delta", "alpha==1.0\n")
    for name, days in [("gamma", 4), ("delta", 2)]:
        house.shoal("env-cache", "prepare", f"team/{name}")
        [lock] = (environments.cache / "environments").glob(f"team-{name}*.lock")
        os.utime(lock, (time.time() - days * 86400,) * 2)
    (house.data / "shoal.toml").write_text('environments_days = 3\nlog = "info"\n')
    house.stop()
    house.start()
    eventually(lambda: "by environments_days" in house.log.read_text())
    [left] = environments.listed()
    assert left.startswith("team-delta-")
    assert f"removed {left}" in house.shoal("env-cache", "prune").stdout
    house.shoal("image", "remove", "team/delta")
    house.shoal("image", "remove", "team/gamma")
    again = house.shoal("image", "remove", "team/gamma", check=False)
    assert again.returncode == 2 and "there is no image team/gamma of your own" in again.stderr


def test_the_real_scikit_learn(jobs, figures):
    """Into the user's own cache, as a user would have it; the first time it fetches some 60 MB."""
    script = "import sklearn, numpy, pandas, sys; print(sklearn.__version__, sys.version_info[:2])\n"
    script += "from sklearn.linear_model import LinearRegression; print(LinearRegression().fit([[0], [1]], [0, 1]).predict([[2]])[0].round(3))\n"
    name = create(jobs, {"train.py": script}, image=SCIKIT_LEARN)
    jobs.completed(name)
    version, prediction = jobs.lines(name)
    assert version.startswith("1.2.") and prediction == "2.0"
    begun = time.monotonic()
    jobs.completed(create(jobs, {"train.py": "print('here')\n"}, image=SCIKIT_LEARN))
    figures(
        f"environments: a script on a cached environment, from submission to its end as seen by polls of 20 ms: {time.monotonic() - begun:.2f} s"
    )
