"""What a training program cannot reach: the server's files, other programs, the network; and
what it can: its own S3 objects.
"""

import pathlib

import boto3
import pytest
from programs import S3


def test_the_programs_own_keys_open_its_channels_and_outputs_only(jobs):
    jobs.put("scope/mine/a.txt", "mine")
    jobs.put("scope/theirs/a.txt", "theirs")
    script = (
        S3
        + """
job = os.environ["TRAINING_JOB_NAME"]
print(*s3("GET", "/tests/scope/mine/a.txt"))
print(s3("GET", "/tests?list-type=2&prefix=scope%2Fmine%2F")[0])
print(s3("PUT", f"/tests/out/{job}/output/extra.txt", b"from inside")[0])
for method, path in [
    ("GET", "/tests/scope/theirs/a.txt"),
    ("GET", "/tests?list-type=2&prefix=scope%2F"),
    ("GET", "/"),
    ("PUT", "/tests/scope/mine/a.txt"),
    ("DELETE", "/tests/scope/mine/a.txt"),
    ("PUT", "/tests/out/another-job/output/extra.txt"),
    ("PUT", "/tests/scope/mine/../theirs/a.txt"),
    ("PUT", "/new-bucket"),
]:
    print(s3(method, path, b"x" if method == "PUT" else b"")[0], method, path)
"""
    )
    name = jobs.python(script, channels=[jobs.channel("train", "scope/mine/")])
    jobs.completed(name)
    own, others = jobs.lines(name)[:3], jobs.lines(name)[3:]
    assert own == ["200 mine", "200", "200"]
    assert len(others) == 8 and all(line.startswith("403 ") for line in others), others
    stored = jobs.s3.get_object(Bucket="tests", Key=f"out/{name}/output/extra.txt")["Body"].read()
    assert stored == b"from inside"


def test_keys_of_a_job_die_with_it(jobs):
    name = jobs.script('echo "$AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $AWS_SESSION_TOKEN"')
    jobs.completed(name)
    key_id, secret, token = jobs.lines(name)[0].split()
    variables = jobs.house.variables_for_clients()
    options = {"aws_access_key_id": key_id, "aws_secret_access_key": secret, "aws_session_token": token}
    s3 = boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT_URL"], region_name="us-east-1", **options)
    with pytest.raises(s3.exceptions.ClientError) as error:
        s3.list_objects_v2(Bucket="tests", Prefix=f"out/{name}/")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_network_isolation_takes_the_endpoint_away(jobs):
    name = jobs.script(
        'echo "endpoint: ${AWS_ENDPOINT_URL-none}, key: ${AWS_ACCESS_KEY_ID-none}"', EnableNetworkIsolation=True
    )
    jobs.completed(name)
    assert jobs.lines(name) == ["endpoint: none, key: none"]


def test_no_way_out(jobs, house):
    """Neither to the world, nor to the machine's own ports by loopback."""
    port = int(house.variables_for_clients()["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])
    script = f"""
import socket
for address in [("192.0.2.1", 80), ("8.8.8.8", 53), ("127.0.0.1", {port})]:
    try:
        socket.create_connection(address, timeout=5).close()
        print("connected to", *address)
    except OSError as error:
        print("no", address[0])
try:
    print(socket.getaddrinfo("example.com", 80))
except OSError:
    print("no names")
"""
    name = jobs.python(script)
    jobs.completed(name)
    lines = jobs.lines(name)
    expected = ["no 192.0.2.1", "no 8.8.8.8", "no 127.0.0.1", "no names"]
    assert lines == expected, "the endpoint is a forwarder of the instance, not the server's own port"


def test_secrets_of_the_machine_are_out_of_sight(jobs, house, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("do not read me")
    secret.chmod(0o600)
    paths = [
        str(secret),
        str(house.data / "keys"),
        str(house.data / "shoal.db"),
        str(house.data),
        "/etc/shadow",
        "/root",
        f"/proc/{house.pid}/environ",
    ]
    script = f"""
import os
for path in {paths!r}:
    try:
        found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(10)
        print("found", path, found)
    except OSError as error:
        print("hidden")
print([name for name in os.listdir("/proc") if name.isdigit() and int(name) > 50])
"""
    name = jobs.python(script)
    jobs.completed(name)
    lines = jobs.lines(name)
    assert lines == ["hidden"] * len(paths) + ["[]"], lines


def test_a_program_cannot_become_root_or_touch_the_machine(jobs):
    script = """
import os, ctypes
def attempt(what, action):
    try:
        action(); print(what, "worked")
    except OSError:
        print(what, "refused")
libc = ctypes.CDLL(None, use_errno=True)
def mount():
    if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None): raise OSError(ctypes.get_errno(), "mount")
attempt("setuid", lambda: os.setuid(0) if os.getuid() else (_ for _ in ()).throw(OSError()))
attempt("mount", mount)
attempt("write to /usr", lambda: open("/usr/bin/planted", "w"))
attempt("write to /etc", lambda: open("/etc/planted", "w"))
attempt("sysctl", lambda: open("/proc/sys/kernel/hostname", "w").write("planted"))
print(open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0") or "no capabilities")
"""
    name = jobs.python(script)
    jobs.completed(name)
    expected = ["setuid", "mount", "write to /usr", "write to /etc", "sysctl"]
    assert jobs.lines(name) == [*(f"{what} refused" for what in expected), "no capabilities"]
    assert not pathlib.Path("/usr/bin/planted").exists() and not pathlib.Path("/etc/planted").exists()


def test_two_jobs_do_not_see_each_other(jobs):
    listen = """
import os, socket, time
server = socket.create_server(("0.0.0.0", 29500))
print("address", socket.gethostbyname(socket.gethostname()), flush=True)
deadline = time.time() + 60
while not os.path.exists("/opt/ml/model/never") and time.time() < deadline: time.sleep(0.1)
"""
    first = jobs.python(listen, instance_type="ml.t3.medium")
    jobs.saying(first, "address")
    address = jobs.lines(first)[0].split()[1]
    connect = f"""
import socket
try:
    socket.create_connection(("{address}", 29500), timeout=2); print("reached")
except OSError:
    print("not reached")
"""
    second = jobs.python(connect, instance_type="ml.t3.medium")
    jobs.completed(second)
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    # Both networks may use the same addresses: then the second has reached nobody but itself.
    assert jobs.lines(second) == ["not reached"]
    jobs.wait(first)
