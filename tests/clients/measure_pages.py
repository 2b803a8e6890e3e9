"""How long the console's pages of an experiment with many runs take: least, median and most of 15 requests each.

`SHOAL_BIN=target/release/shoal python measure_pages.py [RUNS]` in this folder, with the interpreter that
`cargo xtask clients` prints; 10,000 runs by default, whose creation takes about a minute.
"""

import concurrent.futures
import http.cookiejar
import statistics
import sys
import time
import urllib.request

from house import House

WRITERS, REQUESTS = 8, 15
PARAMETERS = [f"p{number}" for number in range(10)]
PAGES = [
    "/console/experiments",
    "/console/experiments/big",
    "/console/experiments/big?sort=max%3Aloss&order=descending",
    "/console/experiments/big?group=tag%3Ateam&sort=param%3Alr",
    "/console/experiments/big?where=param%3Alr&is=lt&value=0.5&q=run",
    "/console/experiments/big?" + "&".join(f"col=param%3A{name}" for name in PARAMETERS),
    "/console/compare?run=run-1&run=run-2&run=run-3",
]


def create(house, numbers):
    """Runs with parameters, a tag, and two metrics of five points."""
    sagemaker, metrics = house.client("sagemaker"), house.client("sagemaker-metrics")
    for number in numbers:
        name = f"run-{number}"
        parameters = {"lr": {"NumberValue": number / 1000}, "kind": {"StringValue": "tree"}}
        parameters |= {one: {"NumberValue": number * place % 11} for place, one in enumerate(PARAMETERS)}
        sagemaker.create_trial_component(
            TrialComponentName=name,
            Status={"PrimaryStatus": "Completed"},
            Parameters=parameters,
            Tags=[{"Key": "team", "Value": f"t{number % 5}"}],
        )
        sagemaker.associate_trial_component(TrialComponentName=name, TrialName="runs")
        now = str(int(time.time()))
        points = [(metric, step) for metric in ("loss", "accuracy") for step in range(5)]
        data = [{"MetricName": m, "Timestamp": now, "Step": s, "Value": number + s / 10} for m, s in points]
        metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)


def main(runs):
    house = House()
    try:
        sagemaker = house.client("sagemaker")
        sagemaker.create_experiment(ExperimentName="big")
        sagemaker.create_trial(TrialName="runs", ExperimentName="big")
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda first: create(house, range(first, runs, WRITERS)), range(WRITERS)))
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        browser = urllib.request.build_opener(cookies)
        browser.open(house.shoal("console").stdout.strip()).read()
        server = house.variables_for_clients()["AWS_ENDPOINT_URL"]
        for page in PAGES:
            took = []
            for _ in range(REQUESTS):
                start = time.perf_counter()
                browser.open(server + page).read()
                took.append(1000 * (time.perf_counter() - start))
            print(f"{min(took):6.1f} {statistics.median(took):6.1f} {max(took):6.1f} ms  {page}", flush=True)
    finally:
        house.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
