"""Renders the chart: `python render.py > shoal.yaml` writes the plain manifest, which is the chart with
its default values in namespace shoal. Needs the packages of tests/clients/kubernetes.lock (Helm 4's
own library): ~/.cache/shoal/kubernetes-*/tools/bin/python, after `cargo xtask kubernetes`.

    render.py [VALUES.json]
"""

import json
import pathlib
import sys

import helm_python as helm

CHART = pathlib.Path(__file__).with_name("chart")
#: In this order they can be applied.
ORDER = ["rights.yaml", "settings.yaml", "service.yaml", "server.yaml"]
HEAD = """\
# A Shoal server on Kubernetes, with what its jobs need. `kubectl apply -f shoal.yaml` once its image is in place of
# `shoal:0.1.0` (deploy/Dockerfile). Made of the chart beside it by render.py; its values say what can be changed.
apiVersion: v1
kind: Namespace
metadata:
  name: shoal
"""


def rendered(values):
    """The manifests of the chart's templates, in order."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="shoal", namespace="shoal")
    return [files[f"shoal/templates/{name}"].strip() for name in ORDER]


def main():
    values = json.loads(pathlib.Path(sys.argv[1]).read_text()) if sys.argv[1:] else {}
    problems = helm.lint(str(CHART))
    print("\n---\n".join([HEAD.strip(), *rendered(values)]))
    print(problems, file=sys.stderr)


if __name__ == "__main__":
    main()
