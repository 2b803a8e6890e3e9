"""Images that are in no table: trees of files that the user names, and what a container engine
has (podman's service by docker's command).
"""

import os
import pathlib
import shutil
import subprocess
import tarfile
import time

import pytest
import traces
from house import House, eventually
from jobs import Jobs

PROGRAMS = ["sh", "cat", "ls", "id", "sleep", "hostname", "head", "rm"]

# What the image starts by itself.
TRAIN = """#!/bin/sh
echo "told $*, color $COLOR, in $(pwd), as $(id -un) on $(hostname)"
cat /opt/ml/input/data/train/rows.csv
trap 'echo told to stop; exit 0' TERM
if [ -e /opt/ml/input/data/train/wait ]; then echo ready; while true; do sleep 0.1; done; fi
echo made-here > /made-here && echo model > "$SM_MODEL_DIR/model"
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A shell, a few programs and what they load: what an image is at least."""
    tree = tmp_path_factory.mktemp("tree")

    def copy(file):
        (tree / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tree / file[1:])

    for program in PROGRAMS:
        copy(f"/bin/{program}")
        loads = subprocess.run(["ldd", f"/bin/{program}"], check=True, capture_output=True, text=True).stdout
        for library in (word for word in loads.split() if word.startswith("/")):
            copy(library)
    (tree / "etc").mkdir()
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "train").write_text(TRAIN)
    (tree / "train").chmod(0o755)
    return tree


def submit(jobs, image, entrypoint=(), arguments=(), instances=1, wait=False):
    request = jobs.request("image")
    prefix = f"train/{request['TrainingJobName']}"
    jobs.put(f"{prefix}/rows.csv", "1,2\n")
    if wait:
        jobs.put(f"{prefix}/wait", "")
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File"}
    for name, words in [("ContainerEntrypoint", entrypoint), ("ContainerArguments", arguments)]:
        if words:
            algorithm[name] = list(words)
    request["AlgorithmSpecification"] = algorithm
    request["InputDataConfig"] = [jobs.channel("train", prefix)]
    request["ResourceConfig"]["InstanceCount"] = instances
    jobs.sagemaker.create_training_job(**request)
    return request["TrainingJobName"]


def refusal(jobs, image):
    with pytest.raises(jobs.sagemaker.exceptions.ClientError) as refused:
        submit(jobs, image)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    return refused.value.response["Error"]["Message"]


def test_a_tree_of_files_is_an_image(house, jobs, tree):
    house.shoal("image", "add", "me/tree", "--rootfs", str(tree))
    line = "ls /; ls /home /root 2>&1; cat /etc/hosts; cat /opt/ml/input/data/train/rows.csv; echo x > /etc/mine; echo m > $SM_MODEL_DIR/$(hostname)"
    name = submit(jobs, "me/tree:7", ["sh", "-c", line], instances=2)
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        lines = jobs.lines(name, host)
        assert "train" in lines and "usr" not in lines, "the tree is all that there is"
        assert any(it.endswith(" algo-2") for it in lines) and "1,2" in lines
    assert set(jobs.artifact(name)) == {"algo-1", "algo-2"}
    assert not (tree / "etc/mine").exists(), "the tree is never changed"
    assert "me/tree " in house.shoal("image", "list").stdout
    house.shoal("image", "remove", "me/tree")
    assert "none that this server can run" in refusal(jobs, "me/tree:7")
    traces.nothing_left(house)


def test_a_tree_may_bring_train(house, jobs, tree, tmp_path):
    for name in ("bin", "lib", "lib64", "etc"):
        shutil.copytree(tree / name, tmp_path / name)
    shutil.copy(tree / "train", tmp_path / "bin/train")
    house.shoal("image", "add", "me/trainer", "--rootfs", str(tmp_path))
    needless = house.shoal("env-cache", "prepare", "me/trainer", check=False)
    assert needless.returncode == 2 and f"it is the tree of files {tmp_path}" in needless.stderr
    name = submit(jobs, "me/trainer")
    jobs.completed(name)
    assert jobs.lines(name)[0].startswith("told , color , in /opt/ml/code, as shoal on algo-1")
    house.shoal("image", "remove", "me/trainer")


def test_what_is_written_into_the_tree_counts_as_the_volume(house, jobs, tree):
    house.shoal("image", "add", "me/full", "--rootfs", str(tree))
    name = submit(
        jobs, "me/full", ["sh", "-c", "head -c 1500000000 /dev/zero > /etc/large; while true; do sleep 0.1; done"]
    )
    assert "VolumeSizeInGB" in jobs.failed(name)
    house.shoal("image", "remove", "me/full")
    traces.nothing_left(house)


@pytest.mark.parametrize("directory", ["/", "/nowhere", "/etc/hosts", "/proc/self/fd"])
def test_what_is_no_tree_is_refused(house, directory):
    refused = house.shoal("image", "add", "me/none", "--rootfs", directory, check=False)
    assert refused.returncode == 2 and "can be the root of an instance" in refused.stderr


class Engine:
    """podman's service with images of its own, and a server that asks it by docker's command."""

    def __init__(self, place, tree):
        self.place = place
        # Its socket's path has to be short.
        self.socket = f"unix:///tmp/{os.path.basename(place)}-{os.getpid()}.sock"
        storage = ["--root", str(place / "root"), "--runroot", str(place / "run"), "--storage-driver", "vfs"]
        with open(place / "log", "wb") as log:
            command = ["podman", *storage, "system", "service", "--time", "0", self.socket]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "CONTAINERS_CONF": os.devnull}
            )
        eventually(lambda: self.docker("version", check=False).returncode == 0)
        archive = place / "tree.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(tree, ".")
        changes = ['ENTRYPOINT ["/train"]', "ENV COLOR=green", "WORKDIR /etc"]
        self.docker(
            "import",
            *(word for change in changes for word in ("--change", change)),
            str(archive),
            "localhost/me/trainer:1",
        )
        variables = {"DOCKER_HOST": self.socket, "SHOAL_ENGINE": "docker", "SHOAL_CACHE": str(place / "cache")}
        self.house = House(variables=variables)
        self.jobs = Jobs(self.house)

    def docker(self, *arguments, check=True):
        environment = {**os.environ, "DOCKER_HOST": self.socket}
        return subprocess.run(["docker", *arguments], check=check, capture_output=True, text=True, env=environment)

    def close(self):
        self.house.close()
        self.process.terminate()
        self.process.wait()
        pathlib.Path(self.socket.removeprefix("unix://")).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory, tree):
    if not (shutil.which("docker") and shutil.which("podman")):
        pytest.skip("needs docker's command and podman")
    engine = Engine(tmp_path_factory.mktemp("engine"), tree)
    yield engine
    engine.close()


def test_an_image_of_the_engine_runs_as_docker_would_run_it(engine):
    jobs, image = engine.jobs, "localhost/me/trainer:1"
    first = submit(jobs, image, instances=2)
    jobs.completed(first)
    for number in (1, 2):
        lines = jobs.lines(first, f"algo-{number}")
        assert lines[-2:] == [f"told train, color green, in /etc, as shoal on algo-{number}", "1,2"]
    said = [line for host in jobs.logs(first).values() for line in host]
    assert sum("reading the image" in line for line in said) == 1, "once for the machine"
    assert jobs.artifact(first) == {"model": b"model\n"}
    again = submit(jobs, image, arguments=["--epochs", "3"])
    jobs.completed(again)
    assert jobs.lines(again)[-2].startswith("told --epochs 3,")
    assert not any("reading" in line for line in jobs.logs(again)["algo-1"]), "it was there"
    assert engine.docker("ps", "--all", "--quiet").stdout == "", "no container is left"
    listed = engine.house.shoal("env-cache", "list").stdout
    assert "trainer-1-" in listed and "an image" in listed
    verified = engine.house.shoal("env-cache", "verify", "trainer-1-").stdout
    assert verified.startswith("trainer-1-") and "not compared, as an image has no digests" in verified
    assert (engine.place / "cache/images").stat().st_mode & 0o777 == 0o700, "programs of the image are nobody else's"
    assert "removed trainer-1-" in engine.house.shoal("env-cache", "prune").stdout


def test_an_image_of_the_engine_is_stopped_like_any_program(engine):
    jobs = engine.jobs
    name = submit(jobs, "localhost/me/trainer:1", wait=True)
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.lines(name)[-1] == "told to stop"
    traces.nothing_left(engine.house)


def test_an_image_of_the_engine_runs_for_an_ordinary_user(engine, make_house):
    """The files lie where nobody but the server's user comes, and the program has them all the
    same.
    """
    if os.getuid() != 0:
        pytest.skip("needs root: else the test before has shown it")
    os.chmod(engine.socket.removeprefix("unix://"), 0o666)
    house = make_house(ordinary=True, variables={"DOCKER_HOST": engine.socket, "SHOAL_ENGINE": "docker"})
    jobs = Jobs(house)
    name = submit(jobs, "localhost/me/trainer:1")
    jobs.completed(name)
    assert jobs.lines(name)[-2].startswith("told train, color green, in /etc, as shoal on algo-1")
    assert (house.root / "home/.cache/shoal/images").stat().st_mode & 0o777 == 0o700


def test_images_that_the_engine_lacks(engine):
    jobs = engine.jobs
    assert "docker has no such image either" in refusal(jobs, "me/trainr")
    assert "no blanks" in refusal(jobs, "--help"), "nothing is an option of docker's"
    # Nobody listens there; a registry that is named is asked when the job runs.
    name = submit(jobs, "127.0.0.1:1/me/trainer:1")
    reason = jobs.failed(name)
    assert "docker could not pull the image 127.0.0.1:1/me/trainer:1" in reason
    assert reason.startswith("InternalServerError"), (
        "a registry that does not answer is no fault of the job's: " + reason
    )


def test_without_an_engine_others_are_refused(make_house, tmp_path):
    variables = {"DOCKER_HOST": f"unix://{tmp_path}/none", "SHOAL_CACHE": str(tmp_path), "PATH": os.environ["PATH"]}
    none = tmp_path / "bin"
    none.mkdir()
    for engine, path, expected in [
        ("none", variables["PATH"], "`engine` is none"),
        ("auto", str(none), "neither docker nor podman is on the server's PATH"),
    ]:
        house = make_house(variables={**variables, "SHOAL_ENGINE": engine, "PATH": path})
        assert expected in refusal(Jobs(house), "docker.io/library/busybox:1")
    if shutil.which("docker"):
        house = make_house(variables={**variables, "SHOAL_ENGINE": "docker"})
        began = time.monotonic()
        message = refusal(Jobs(house), "docker.io/library/busybox:1")
        assert "no container engine answers" in message and "DOCKER_HOST" in message, (
            message,
            time.monotonic() - began,
        )
        told = house.shoal("env-cache", "prepare", "docker.io/library/busybox:1", check=False)
        assert told.returncode == 2 and "no container engine answers" in told.stderr
