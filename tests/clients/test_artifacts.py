"""model.tar.gz and output.tar.gz: what all hosts left, in one archive that everybody's tar
opens.
"""

import hashlib
import io
import stat
import subprocess
import tarfile


def archive(jobs, name, which="model"):
    return jobs.s3.get_object(Bucket="tests", Key=f"out/{name}/output/{which}.tar.gz")["Body"].read()


def test_directories_of_hosts_are_joined(jobs):
    script = """
    host=$(hostname)
    mkdir -p /opt/ml/model/shared /opt/ml/output/data/logs
    echo $host > /opt/ml/model/shared/$host.txt
    echo $host > /opt/ml/output/data/logs/$host.log
    """
    name = jobs.script(script, instances=3)
    jobs.completed(name)
    hosts = ("algo-1", "algo-2", "algo-3")
    assert jobs.artifact(name) == {f"shared/{host}.txt": f"{host}\n".encode() for host in hosts}
    assert jobs.artifact(name, "output") == {f"logs/{host}.log": f"{host}\n".encode() for host in hosts}


def test_modes_links_and_long_names(jobs, tmp_path):
    script = f"""
    set -e
    cd /opt/ml/model
    echo run > run.sh; chmod 755 run.sh
    ln -s run.sh link
    mkdir -p {"d" * 100}/{"e" * 100}; echo deep > {"d" * 100}/{"e" * 100}/{"f" * 100}
    mkdir empty; echo x > 'a b ü'
    """
    name = jobs.script(script)
    jobs.completed(name)
    body = archive(jobs, name)
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        members = {member.name.removeprefix("./"): member for member in tar}
    assert stat.S_IMODE(members["run.sh"].mode) & 0o111
    assert members["link"].issym() and members["link"].linkname == "run.sh"
    assert members["empty"].isdir()
    assert "a b ü" in members and "/".join(["d" * 100, "e" * 100, "f" * 100]) in members
    (tmp_path / "model.tar.gz").write_bytes(body)
    subprocess.run(["tar", "-xzf", "model.tar.gz"], cwd=tmp_path, check=True)
    assert (tmp_path / "link").read_text() == "run\n"


def test_a_large_model(jobs):
    name = jobs.script(
        "head -c 50000000 /dev/urandom > /opt/ml/model/weights; sha256sum < /opt/ml/model/weights", instances=1
    )
    jobs.completed(name)
    assert jobs.lines(name) == [f"{hashlib.sha256(jobs.artifact(name)['weights']).hexdigest()}  -"]


def test_a_link_out_of_the_model_brings_nothing_of_the_machine(jobs):
    name = jobs.script("ln -s /etc/passwd /opt/ml/model/passwd; ln -s / /opt/ml/model/root; echo m > /opt/ml/model/m")
    jobs.completed(name)
    assert jobs.artifact(name) == {"m": b"m\n"}


def test_no_model_is_an_empty_archive_and_no_output_is_none(jobs):
    name = jobs.script("true")
    jobs.completed(name)
    assert jobs.artifact(name) == {}
    assert "Contents" not in jobs.s3.list_objects_v2(Bucket="tests", Prefix=f"out/{name}/output/output.tar.gz")


def test_a_failed_job_has_no_model(jobs):
    name = jobs.script("echo half > /opt/ml/model/half; exit 1")
    jobs.failed(name)
    assert "Contents" not in jobs.s3.list_objects_v2(Bucket="tests", Prefix=f"out/{name}/output/model.tar.gz")


def test_the_path_of_the_output(jobs):
    for path in ("s3://tests/deep/er", "s3://tests/deep/er/", "s3://tests"):
        name = jobs.script("echo m > /opt/ml/model/m", OutputDataConfig={"S3OutputPath": path})
        uri = jobs.completed(name)["ModelArtifacts"]["S3ModelArtifacts"]
        assert uri == f"{path.rstrip('/')}/{name}/output/model.tar.gz"
        bucket, key = uri.removeprefix("s3://").split("/", 1)
        jobs.s3.head_object(Bucket=bucket, Key=key)
