"""The way out of an instance: closed, to the hosts of a list, or open; and the hint where it is
missing.
"""

import http.server
import threading
import urllib.request

import pytest
from botocore.exceptions import ClientError
from house import eventually
from jobs import Jobs

KINDS = {"as we are": {}, "ordinary user": {"ordinary": True}}
TAG = "shoal:network"
# An index of packages as pip's users have it, on a machine that has a way there.
INDEX = ("pypi.org", "files.pythonhosted.org")

FETCH = """
import os, urllib.error, urllib.request
def fetch(url):
    try:
        return urllib.request.urlopen(url, timeout=30).read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except (urllib.error.URLError, OSError) as error:
        return str(getattr(error, "reason", error))
"""


class Answer(http.server.BaseHTTPRequestHandler):
    """The world outside: says for what it was asked."""

    def do_GET(self):
        body = f"{self.path} of {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def outside():
    """Address and port of a server outside of every instance."""
    server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.2:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module", params=KINDS)
def listing(request, make_house, outside):
    """Jobs of a server that opens a list."""
    allow = ",".join([outside, *INDEX])
    return Jobs(
        make_house("--network", "allow-list", "--network-max", "host", "--network-allow", allow, **KINDS[request.param])
    )


def notes(jobs, name):
    """What the log says of connections and networks."""
    return [line for lines in jobs.logs(name).values() for line in lines if "outside" in line]


def test_a_listed_host_is_reached_and_no_other(listing, outside):
    server = listing.house.variables_for_clients()["AWS_ENDPOINT_URL"]
    script = f"""{FETCH}
import http.client, socket
print(fetch("http://{outside}/plain"))
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
tunnel = http.client.HTTPConnection(host, int(port))
tunnel.set_tunnel("{outside}")
tunnel.request("GET", "/tunnel")
print(tunnel.getresponse().read().decode())
proxy = urllib.request.build_opener(urllib.request.ProxyHandler({{"http": f"http://{{host}}:{{port}}"}}))
urllib.request.install_opener(proxy)
os.environ.pop("NO_PROXY"); os.environ.pop("no_proxy")
for url in ["http://example.com/", "{server}/", "http://127.0.0.2:9/", "http://localhost:9/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:9/"]:
    print(fetch(url))
try:
    socket.create_connection(("127.0.0.2", {outside.rsplit(":")[1]}), timeout=5)
    print("connected")
except OSError:
    print("no way but the proxy")
"""
    name = listing.python(script)
    listing.completed(name)
    lines = [line for line in listing.lines(name) if "[shoal]" not in line]
    assert lines[:2] == [f"/plain of {outside}", f"/tunnel of {outside}"]
    assert len(lines) == 9 and all(line.startswith("403 ") for line in lines[2:8]), lines
    assert lines[2] == "403 example.com:80 is not in network_allow" and "is this server" in lines[3]
    assert lines[8] == "no way but the proxy"
    assert sum("example.com:80 is not in network_allow" in line for line in notes(listing, name)) == 1


def test_the_tag_closes_and_opens_and_isolation_wins(listing, outside):
    port = outside.rsplit(":")[1]
    script = f"""{FETCH}
print(os.environ.get("HTTPS_PROXY", "no proxy"), fetch("http://{outside}/"), sep="; ")
"""
    closed = listing.python(script, Tags=[{"Key": TAG, "Value": "none"}])
    isolated = listing.python(script, EnableNetworkIsolation=True)
    opened = listing.python(script, Tags=[{"Key": TAG, "Value": "host"}])
    for name in (closed, isolated):
        listing.completed(name)
        (line,) = [line for line in listing.lines(name) if "[shoal]" not in line]
        assert line.startswith("no proxy; ") and "/ of" not in line
    listing.completed(opened)
    assert listing.lines(opened)[-1] == f"http://127.0.0.1:9778; / of 127.0.0.2:{port}"
    with pytest.raises(ClientError, match="it is one of none, allow-list or host") as error:
        listing.python(script, Tags=[{"Key": TAG, "Value": "all"}])
    assert error.value.response["Error"]["Code"] == "ValidationException"


def test_a_kept_instance_serves_jobs_of_the_same_network_only(listing):
    script = f"{FETCH}\nprint('HTTPS_PROXY' in os.environ)"
    kept = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": 600}
    first = listing.python(script, ResourceConfig=kept)
    listing.completed(first)
    eventually(lambda: listing.describe(first).get("WarmPoolStatus", {}).get("Status") == "Available")
    other = listing.python(script, ResourceConfig=kept, Tags=[{"Key": TAG, "Value": "none"}])
    listing.completed(other)
    assert [listing.lines(name)[-1] for name in (first, other)] == ["True", "False"]
    assert listing.describe(first)["WarmPoolStatus"].get("ReusedByJob") is None
    for name in (first, other):
        listing.sagemaker.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def test_pip_downloads_from_a_listed_index(listing):
    try:
        urllib.request.urlopen("https://pypi.org/simple/six/", timeout=30).close()
    except OSError as error:
        pytest.skip(f"needs a package index: {error}")
    certificates = {"PIP_CERT": "/etc/ssl/certs/ca-certificates.crt", "PIP_NO_CACHE_DIR": "1"}
    line = "python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest /opt/ml/model six==1.16.0 && ls /opt/ml/model"
    name = listing.script(line, Environment=certificates)
    listing.completed(name)
    assert listing.lines(name)[-1] == "six-1.16.0-py2.py3-none-any.whl"
    # Another index is not listed.
    other = listing.script(
        "python3 -m pip download --retries 0 --index-url https://index.example/simple --no-deps six",
        Environment=certificates,
    )
    listing.failed(other)
    assert any("index.example:443 is not in network_allow" in line for line in notes(listing, other))


def test_a_closed_network_is_explained_and_not_opened_by_a_tag(jobs):
    name = jobs.python("import urllib.request\nurllib.request.urlopen('https://pypi.org/')")
    jobs.failed(name)
    (hint,) = notes(jobs, name)
    assert "network_allow" in hint
    isolated = jobs.python("import socket\nsocket.create_connection(('pypi.org', 443))", EnableNetworkIsolation=True)
    jobs.failed(isolated)
    assert "EnableNetworkIsolation" in notes(jobs, isolated)[0]
    with pytest.raises(ClientError, match='this server permits at most "none"'):
        jobs.command("true", Tags=[{"Key": TAG, "Value": "host"}])


def test_settings_that_make_no_sense_are_refused(house):
    for flags, expected in [
        (["--network", "all"], "one of none, allow-list or host"),
        (["--network-allow", "https://pypi.org"], "is not an allowed host"),
        (["--network", "host", "--network-max", "none"], "at least network"),
    ]:
        refused = house.shoal("config", *flags, check=False)
        assert refused.returncode != 0 and expected in refused.stderr, refused.stderr
