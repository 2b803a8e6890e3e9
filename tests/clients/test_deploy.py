"""deploy/: the plain manifest and the Helm chart are the same, and fit the APIs of newer clusters than
the one that the tests have. test_kubernetes.py applies them to that one.
"""

import json
import pathlib
import subprocess

import k8s_cluster
import pytest

CHECK = pathlib.Path(__file__).parents[2] / "deploy/check.py"


@pytest.fixture(scope="module")
def found():
    if problem := k8s_cluster.missing():
        pytest.skip(problem)
    python = k8s_cluster.built() / "tools/bin/python"
    done = subprocess.run([python, "-B", CHECK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plain_manifest_is_the_chart_with_its_defaults(found):
    assert found["is_plain_the_chart"], "deploy/render.py writes deploy/shoal.yaml"
    assert found["lint"] == []


def test_manifests_fit_newer_clusters(found):
    assert len(found["versions"]) > 10 and found["problems"] == [], found["problems"]
    # One that does not is found, by each version.
    assert len(found["mistake"]) == len(found["versions"])
    assert "'imagePullpolicy' was unexpected" in found["mistake"][0]


def test_the_chart_does_what_its_values_say(found):
    by_kind = {it["kind"]: it for it in found["rendered"]}
    assert "ClusterRole" not in by_kind
    secrets = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["registry"], "verbs": ["get"]}
    assert by_kind["Role"]["rules"][-1] == secrets
    settings = by_kind["ConfigMap"]["data"]["shoal.toml"]
    for line in ('region = "eu-central-1"', 'image = "registry.example.org/team/shoal:1"', 'queue = "team"'):
        assert line in settings, settings
    claim = by_kind["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "1Ti")
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}] and pod["nodeSelector"] == {"disk": "ssd"}
    assert "additional properties 'sise' not allowed" in found["refusal"]
