"""Training jobs of the tests: requests, waiting, logs, artifacts."""

import hashlib
import io
import itertools
import pathlib
import re
import tarfile
import time
import urllib.request

import pytest
from house import BUCKET, eventually

ROLE = "arn:aws:iam::123456789012:role/tests"
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
GROUP = "/aws/sagemaker/TrainingJobs"
PYTHON = "/usr/bin/python3"

_numbers = itertools.count(1)


class Jobs:
    """What tests do with training jobs, over the clients of one server."""

    def __init__(self, house):
        self.house = house
        self.connect()
        self.s3.create_bucket(Bucket=BUCKET)

    def connect(self):
        """Needed again when the server has started again: its port is another."""
        self.sagemaker = self.house.client("sagemaker")
        self.s3 = self.house.client("s3")
        self.logs_client = self.house.client("logs")

    def put(self, key, text):
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=text.encode() if isinstance(text, str) else text)
        return f"s3://{BUCKET}/{key}"

    def channel(self, name, prefix, distribution="FullyReplicated", content_type=None):
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}", "S3DataDistributionType": distribution}
        channel = {"ChannelName": name, "DataSource": {"S3DataSource": source}}
        return {**channel, "ContentType": content_type} if content_type else channel

    def request(self, name, **changes):
        """A request that lacks only its algorithm; `changes` replace whole members."""
        return {
            "TrainingJobName": f"{name}-{next(_numbers)}",
            "RoleArn": ROLE,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **changes,
        }

    def script(
        self,
        text,
        instances=1,
        metrics=(),
        channels=(),
        instance_type="ml.m5.large",
        name="script",
        interpreter="/bin/sh",
        **changes,
    ):
        """Creates a job that runs a script in every instance; gives its name."""
        key = f"code/{hashlib.sha256(text.encode()).hexdigest()[:16]}/run.sh"
        self.put(key, text)
        request = self.request(
            name,
            AlgorithmSpecification={
                "TrainingImage": "shoal/host",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": [interpreter, "/opt/ml/input/data/code/run.sh"],
                "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in metrics],
            },
            InputDataConfig=[self.channel("code", key.rsplit("/", 1)[0]), *channels],
            **changes,
        )
        request["ResourceConfig"] = {
            **request["ResourceConfig"],
            "InstanceCount": instances,
            "InstanceType": instance_type,
        }
        self.sagemaker.create_training_job(**request)
        return request["TrainingJobName"]

    def command(self, line, instances=1, instance_type="ml.t3.medium", metrics=(), **changes):
        """Creates a job that runs one line of shell; where there are no namespaces this is all
        that is at its place.
        """
        request = self.request(
            "command",
            AlgorithmSpecification={
                "TrainingImage": "shoal/host",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c", line],
                "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in metrics],
            },
            **changes,
        )
        request["ResourceConfig"] = {
            **request["ResourceConfig"],
            "InstanceCount": instances,
            "InstanceType": instance_type,
        }
        self.sagemaker.create_training_job(**request)
        return request["TrainingJobName"]

    def python(self, text, **options):
        """The same in Python."""
        if not pathlib.Path(PYTHON).exists():
            pytest.skip(f"needs {PYTHON}: instances see the machine's own /usr")
        return self.script(text, interpreter=PYTHON, **options)

    def xgboost(
        self,
        train,
        validation=None,
        instances=1,
        sharded=False,
        content_type="text/csv",
        image=XGBOOST,
        changes=None,
        **hyperparameters,
    ):
        """Creates an XGBoost job over the files below these prefixes; gives its name."""
        distribution = "ShardedByS3Key" if sharded else "FullyReplicated"
        channels = [self.channel("train", train, distribution, content_type)]
        if validation:
            channels.append(self.channel("validation", validation, content_type=content_type))
        request = self.request(
            "xgboost",
            AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
            HyperParameters={key: str(value) for key, value in hyperparameters.items()},
            InputDataConfig=channels,
            **(changes or {}),
        )
        request["ResourceConfig"]["InstanceCount"] = instances
        self.sagemaker.create_training_job(**request)
        return request["TrainingJobName"]

    def describe(self, name):
        return self.sagemaker.describe_training_job(TrainingJobName=name)

    def wait(self, name, seconds=240):
        """The description of a job that is over."""
        over = ("Completed", "Failed", "Stopped")
        return eventually(lambda: (it := self.describe(name))["TrainingJobStatus"] in over and it, seconds)

    def while_running(self, name, seconds=240):
        """Turns of a loop until the job is over."""
        end = time.monotonic() + seconds
        while (it := self.describe(name))["TrainingJobStatus"] == "InProgress":
            assert time.monotonic() < end, (
                f"{name} is still {it['SecondaryStatus']} after {seconds} s: {self.logs(name)}"
            )
            yield it

    def until(self, name, secondary, seconds=120):
        return eventually(lambda: (it := self.describe(name))["SecondaryStatus"] == secondary and it, seconds)

    def completed(self, name):
        """The description of a job that must have done well."""
        description = self.wait(name)
        assert description["TrainingJobStatus"] == "Completed", (description.get("FailureReason"), self.logs(name))
        return description

    def failed(self, name):
        """The reason of a job that must fail."""
        description = self.wait(name)
        assert description["TrainingJobStatus"] == "Failed", self.logs(name)
        return description["FailureReason"]

    def logs(self, name):
        """`{"algo-1": [line, ..], ..}`"""
        found = {}
        try:
            streams = self.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")[
                "logStreams"
            ]
        except self.logs_client.exceptions.ResourceNotFoundException:
            return found
        for stream in streams:
            lines, token = [], None
            while True:
                options = {"nextToken": token} if token else {}
                answer = self.logs_client.get_log_events(
                    logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True, **options
                )
                lines += [event["message"] for event in answer["events"]]
                if answer["nextForwardToken"] == token:
                    break
                token = answer["nextForwardToken"]
            found[stream["logStreamName"].split("/")[1].rsplit("-", 1)[0]] = lines
        return found

    def lines(self, name, host="algo-1"):
        """What the training program wrote; what Shoal adds is marked and left out."""
        return [line for line in self.logs(name).get(host, []) if not line.startswith("[shoal] ")]

    def saying(self, name, text, host="algo-1"):
        """Waits until a host's log has a line with this text."""
        eventually(lambda: any(text in line for line in self.lines(name, host)), 240)

    def inputs_sent(self):
        """Bytes of inputs that the server has sent to agents on other machines since its start."""
        token = (self.house.data / "metrics-token").read_text().strip()
        url = self.house.variables_for_clients()["AWS_ENDPOINT_URL"] + "/metrics"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        page = urllib.request.urlopen(request).read().decode()
        return float(re.search(r"^shoal_inputs_sent_bytes_total (\S+)$", page, re.M)[1])

    def metrics(self, name):
        """The last value of each metric of a job."""
        return {metric["MetricName"]: metric["Value"] for metric in self.describe(name)["FinalMetricDataList"]}

    def artifact(self, name, archive="model"):
        """Names and contents of a job's model.tar.gz or output.tar.gz."""
        body = self.s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/{archive}.tar.gz")["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            return {member.name.removeprefix("./"): tar.extractfile(member).read() for member in tar if member.isfile()}
