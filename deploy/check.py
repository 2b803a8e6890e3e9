"""Checks the chart and the manifests beside it: rendered by Helm 4's own library with several values,
against the strict schemas of Kubernetes' APIs from 1.25 to the newest that the package has (the tests
apply them to a real API server 1.20). Prints JSON; by the interpreter that `cargo xtask kubernetes` makes.

    check.py [MANIFEST.json ..]      those instead of the chart's, each file a list
"""

import json
import pathlib
import sys

import helm_python as helm
import kubernetes_validate
import render
import yaml

HERE = pathlib.Path(__file__).parent
VALUES = {
    "defaults": {},
    "all": {
        "image": {"repository": "registry.example.org/team/shoal", "tag": "1", "pullSecrets": ["registry"]},
        "storage": {"size": "1Ti", "className": "fast"},
        "settings": 'region = "eu-central-1"\n',
        "target": 'instances = 7\nqueue = "team"\n',
        "tlsNames": ["train.example.org"],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "readNodes": False,
        "readSecrets": ["registry"],
        "initImage": "registry.example.org/team/shoal-static:1",
    },
}
WRONG = {"storage": {"sise": "1Gi"}}


def versions():
    root = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    names = {it.name.split("-")[0].removeprefix("v") for it in root.iterdir()}
    return sorted((name.rsplit(".", 1)[0] for name in names), key=lambda it: [int(part) for part in it.split(".")])


def problems_of(manifests):
    """What each version has against them: `version kind: problem`."""
    problems = []
    for version in versions():
        for manifest in manifests:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(map(str, error.path))
                problems.append(f"{version} {manifest['kind']} {where}: {error.message}")
    return problems


def documents(text):
    return [it for it in yaml.safe_load_all(text) if it]


def of_chart():
    plain = (HERE / "shoal.yaml").read_text()
    made = {name: documents("\n---\n".join(render.rendered(values))) for name, values in VALUES.items()}
    try:
        render.rendered(WRONG)
        refusal = None
    except helm.HelmError as error:
        refusal = str(error)
    mistaken = json.loads(json.dumps(made["defaults"][-1]))
    mistaken["spec"]["template"]["spec"]["containers"][0]["imagePullpolicy"] = "Always"
    return {
        "versions": versions(),
        "lint": helm.lint(str(HERE / "chart"), strict=True)["errors"],
        "problems": problems_of(documents(plain) + made["all"]),
        "is_plain_the_chart": documents(plain)[1:] == made["defaults"],
        "refusal": refusal,
        "mistake": problems_of([mistaken]),
        "rendered": made["all"],
    }


def main():
    if sys.argv[1:]:
        manifests = [manifest for path in sys.argv[1:] for manifest in json.loads(pathlib.Path(path).read_text())]
        print(json.dumps({"versions": versions(), "problems": problems_of(manifests)}))
    else:
        print(json.dumps(of_chart(), indent=1))


if __name__ == "__main__":
    main()
