"""`/metrics`, read as strictly as Prometheus does; and the dashboard that reads it."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from house import BUCKET, eventually
from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = pathlib.Path(__file__).parents[2] / "docs/grafana/shoal.json"
LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(house, host=None, **headers):
    url = house.variables_for_clients()["AWS_ENDPOINT_URL"] + "/metrics"
    if host:
        url = re.sub(r"//[^:/]+", f"//{host}", url)
    headers = headers or {"Authorization": f"Bearer {(house.data / 'metrics-token').read_text()}"}
    with LOOPBACK.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
        return answer.read().decode()


def samples(text):
    """`{(name, (label, ..)): value}`"""
    families = text_string_to_metric_families(text)
    return {
        (it.name, *(it.labels[name] for name in sorted(it.labels))): it.value
        for family in families
        for it in family.samples
    }


def test_numbers_follow_what_happens(house, jobs):
    before = samples(fetch(house))
    name = jobs.command("echo 'loss: 0.5'; echo 'loss: 0.25'; exec sleep 30", metrics=[("loss", r"loss: (\S+)")])
    jobs.saying(name, "0.25")
    during = eventually(lambda: (now := samples(fetch(house)))[("shoal_metric_points_total",)] >= 2 and now)
    assert during[("shoal_training_jobs", "Training")] >= 1
    assert during[("shoal_instances_running",)] >= 1 and during[("shoal_agents_connected",)] >= 1
    assert during[("shoal_log_lines_total",)] >= before[("shoal_log_lines_total",)] + 2
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    jobs.put("metrics/half", b"x" * 500_000)
    with pytest.raises(jobs.sagemaker.exceptions.ClientError):
        jobs.describe("nobody-knows")
    after = samples(fetch(house))
    grown = lambda *key: after[key] - before.get(key, 0)
    assert grown("shoal_training_job_duration_seconds_count", "Stopped") >= 1
    assert grown("shoal_s3_received_bytes_total") >= 500_000
    request = "shoal_http_request_duration_seconds_count"
    # Labels in the order of their names: code, operation, service.
    assert grown(request, "200", "CreateTrainingJob", "sagemaker") >= 1
    assert grown(request, "400", "DescribeTrainingJob", "sagemaker") >= 1
    assert grown(request, "200", "PutObject", "s3") >= 1
    assert grown("shoal_journal_append_duration_seconds_count") >= 3
    assert 0 < after[("process_resident_memory_bytes",)] < 1e9 and after[("process_cpu_seconds_total",)] > 0
    # Numbers only: neither names nor keys.
    text = fetch(house)
    assert name not in text and BUCKET not in text and house.variables_for_clients()["AWS_ACCESS_KEY_ID"] not in text


def test_invented_operations_make_no_labels(house, jobs):
    url = house.variables_for_clients()["AWS_ENDPOINT_URL"]
    request = urllib.request.Request(url, data=b"{}", headers={"X-Amz-Target": "SageMaker.Invented"})
    with pytest.raises(urllib.error.HTTPError):
        LOOPBACK.open(request)
    assert "Invented" not in fetch(house) and 'operation="unknown"' in fetch(house)


def test_nobody_reads_it_without_the_token(house, jobs):
    """Not from this machine, either: a job's program reaches the server there."""
    assert (house.data / "metrics-token").stat().st_mode & 0o777 == 0o600
    for headers in ({"Accept": "*/*"}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(house, "127.0.0.1", **headers)
        assert refused.value.code == 401 and b"metrics-token" in refused.value.read()
    assert "shoal_build_info" in fetch(house, "127.0.0.1")
    name = jobs.command(
        "curl --silent --output /dev/null --write-out 'answer %{http_code}\\n' $AWS_ENDPOINT_URL/metrics || echo none"
    )
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    assert "answer 401" in "".join(jobs.lines(name))


def test_promtool_finds_nothing(house):
    if not shutil.which("promtool"):
        pytest.skip("needs promtool (Debian: prometheus)")
    checked = subprocess.run(["promtool", "check", "metrics"], input=fetch(house), text=True, capture_output=True)
    assert checked.returncode == 0 and checked.stderr == "", checked.stderr


def expressions():
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_promtool_reads_the_dashboards_expressions(tmp_path):
    if not shutil.which("promtool"):
        pytest.skip("needs promtool (Debian: prometheus)")
    plain = [it.replace("$__rate_interval", "1m").replace("$instance", ".*") for it in expressions()]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(plain)]
    # Rules are YAML, of which JSON is a part.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.yml")], text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr


def test_the_dashboard_asks_for_what_there_is(house, jobs):
    jobs.completed(jobs.command("echo up"))
    names = {it.name for family in text_string_to_metric_families(fetch(house)) for it in family.samples}
    assert len(expressions()) >= 10
    for expression in expressions():
        used = re.findall(r"\b(?:shoal|process)_\w+", expression)
        assert used and set(used) <= names, expression
