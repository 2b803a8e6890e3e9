"""A team on one server: what keys of each role open, over the real clients, and the audit log."""

import json
import re
import time

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from test_console_door import Visitor


class Key:
    """Clients with one key."""

    def __init__(self, house, answer):
        self.house, self.id, self.secret = house, answer["AccessKeyId"], answer["SecretAccessKey"]

    def client(self, service, **keys):
        variables = self.house.variables_for_clients()
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=variables["AWS_REGION"],
            aws_access_key_id=keys.get("AccessKeyId", self.id),
            aws_secret_access_key=keys.get("SecretAccessKey", self.secret),
            aws_session_token=keys.get("SessionToken"),
            config=Config(retries={"max_attempts": 1}),
        )


def refusal(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]


@pytest.fixture(scope="module")
def team(house, jobs):
    def add(name, *flags):
        return Key(house, json.loads(house.shoal("keys", "add", name, *flags, "--json").stdout))

    keys = {
        "anna": add("anna", "--role", "user", "--write", "s3://tests/out/anna/"),
        "ben": add("ben", "--role", "user"),
        "rita": add("rita", "--role", "reader"),
    }
    yield keys
    for name in keys:
        house.shoal("keys", "remove", name)


@pytest.fixture(scope="module")
def job(team, jobs):
    """A job of anna's that runs until it is stopped, of a script that the owner has uploaded."""
    jobs.put("team/run.sh", "echo to be seen; sleep 300")
    request = jobs.request(
        "annas",
        AlgorithmSpecification={
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "/opt/ml/input/data/code/run.sh"],
        },
        InputDataConfig=[jobs.channel("code", "team")],
    )
    anna = team["anna"].client("sagemaker")
    assert "may not write s3://tests/out" in refusal(anna.create_training_job, **request)["Message"]
    request["OutputDataConfig"]["S3OutputPath"] = "s3://tests/out/anna/"
    anna.create_training_job(**request)
    yield request["TrainingJobName"]
    anna.stop_training_job(TrainingJobName=request["TrainingJobName"])


def test_each_key_is_an_iam_user(house, team):
    account = house.client("sts").get_caller_identity()["Account"]
    for name, key in team.items():
        arn = f"arn:aws:iam::{account}:user/{name}"
        assert key.client("sts").get_caller_identity()["Arn"] == arn
        user = key.client("iam").get_user()["User"]
        assert (user["UserName"], user["Arn"]) == (name, arn)
    shown = house.shoal("keys", "list").stdout
    assert re.search(r"^anna +user +AKIA\w+ +\S+ +all +s3://tests/out/anna/$", shown, re.MULTILINE), shown
    assert all(key.secret not in shown for key in team.values())


def test_a_users_job_is_the_users(house, team, job):
    anna, ben, rita = (team[name].client("sagemaker") for name in ("anna", "ben", "rita"))
    listed = [[it["TrainingJobName"] for it in who.list_training_jobs()["TrainingJobSummaries"]] for who in (anna, ben)]
    assert listed == [[job], []]
    assert job in [it["TrainingJobName"] for it in rita.list_training_jobs()["TrainingJobSummaries"]]
    arn = anna.describe_training_job(TrainingJobName=job)["TrainingJobArn"]
    for call in (ben.describe_training_job, ben.stop_training_job, rita.stop_training_job):
        error = refusal(call, TrainingJobName=job)
        assert error["Code"] == "AccessDeniedException"
        assert re.match(
            rf"User: arn:aws:iam::\d+:user/(ben|rita) is not authorized to perform: sagemaker:\w+ on resource: {arn}",
            error["Message"],
        )
    found = house.client("sagemaker").describe_training_job(TrainingJobName=job)
    assert found["TrainingJobStatus"] == "InProgress"
    logs = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{job}/"}
    assert refusal(team["ben"].client("logs").describe_log_streams, **logs)["Code"] == "AccessDeniedException"
    deadline = time.monotonic() + 60
    while not team["anna"].client("logs").describe_log_streams(**logs)["logStreams"]:
        assert time.monotonic() < deadline, house.log.read_text()
        time.sleep(0.2)
    # The command line is a client like others.
    keys = {"AWS_ACCESS_KEY_ID": team["ben"].id, "AWS_SECRET_ACCESS_KEY": team["ben"].secret}
    stopped = house.shoal(
        "jobs", "stop", job, check=False, env={**house.variables_for_clients(), **keys, "PATH": "/usr/bin"}
    )
    assert stopped.returncode != 0, stopped


def test_s3_is_open_as_the_owner_says(jobs, team):
    uri = {"Bucket": "tests", "Key": "team/shared.txt"}
    jobs.put(uri["Key"], "for all")
    for name in team:
        assert team[name].client("s3").get_object(**uri)["Body"].read() == b"for all"
    anna, rita = (team[name].client("s3") for name in ("anna", "rita"))
    own = {"Bucket": "tests", "Key": "out/anna/notes.txt"}
    anna.put_object(**own, Body=b"mine")
    for client, target in ((anna, uri), (rita, own), (rita, uri)):
        assert refusal(client.put_object, **target, Body=b"no")["Code"] == "AccessDenied"
        assert refusal(client.delete_object, **target)["Code"] == "AccessDenied"
        assert refusal(client.create_multipart_upload, **target)["Code"] == "AccessDenied"
        copy = {"Bucket": target["Bucket"], "Key": target["Key"]}
        assert refusal(client.copy_object, **target, CopySource=copy)["Code"] == "AccessDenied"
    assert refusal(anna.create_bucket, Bucket="annas")["Code"] == "AccessDenied"
    assert refusal(rita.delete_bucket, Bucket="tests")["Code"] == "AccessDenied"
    keys = {"Objects": [{"Key": own["Key"]}, {"Key": uri["Key"]}]}
    assert refusal(anna.delete_objects, Bucket="tests", Delete=keys)["Code"] == "AccessDenied"
    assert anna.get_object(**own)["Body"].read() == b"mine"


def test_a_role_has_the_rights_of_its_key_and_ends_with_it(house, team, job):
    answer = json.loads(house.shoal("keys", "add", "passing", "--role", "reader", "--json").stdout)
    passing = Key(house, answer)
    role = {"RoleArn": "arn:aws:iam::123456789012:role/Admin", "RoleSessionName": "me"}
    assumed = passing.client("sts").assume_role(**role)["Credentials"]
    reading = passing.client("sagemaker", **assumed)
    assert reading.describe_training_job(TrainingJobName=job)["TrainingJobName"] == job
    assert refusal(reading.stop_training_job, TrainingJobName=job)["Code"] == "AccessDeniedException"
    rotated = Key(house, json.loads(house.shoal("keys", "rotate", "passing", "--json").stdout))
    for client in (reading, passing.client("sagemaker")):
        assert refusal(client.list_training_jobs)["Code"] == "UnrecognizedClientException"
    rotated.client("sagemaker").list_training_jobs()
    house.shoal("keys", "remove", "passing")
    assert refusal(rotated.client("sagemaker").list_training_jobs)["Code"] == "UnrecognizedClientException"


def test_the_console_shows_what_the_key_that_signed_in_sees(house, team, job):
    pages = {}
    for name in ("anna", "ben", "rita"):
        visitor = Visitor(house)
        visitor.keys = {"access_key_id": team[name].id, "secret_access_key": team[name].secret}
        assert visitor.ask("POST", "/console/sign-in", visitor.keys).status == 303
        pages[name] = visitor
    for name, is_seen in (("anna", True), ("ben", False), ("rita", True)):
        assert (job in pages[name].ask("GET", "/console").text) == is_seen
        for page in ("", "/series", "/logs", "/log.txt", "/utilization"):
            status = pages[name].ask("GET", f"/console/jobs/{job}{page}").status
            assert (status == 200) == is_seen, (name, page, status)
    download = "/console/object?bucket=tests&key=team/run.sh"
    assert pages["ben"].ask("GET", download).status == 200, "without --read all may be read"
    for name, status in (("ben", 404), ("rita", 403)):
        assert pages[name].ask("POST", f"/console/jobs/{job}/stop").status == status
    assert pages["ben"].ask("GET", "/console/cost").status == 403
    assert pages["rita"].ask("GET", "/console/cost").status == 200


def test_the_audit_log_has_who_did_what(house, team, job):
    trail = house.client("cloudtrail")

    def events(key, value):
        found = trail.lookup_events(LookupAttributes=[{"AttributeKey": key, "AttributeValue": value}])["Events"]
        return [(it["EventName"], it["Username"], json.loads(it["CloudTrailEvent"]).get("errorCode")) for it in found]

    refusal(team["ben"].client("sagemaker").stop_training_job, TrainingJobName=job)
    assert ("StopTrainingJob", "ben", "AccessDeniedException") in events("ResourceName", job)
    assert ("CreateTrainingJob", "anna", None) in events("ResourceName", job)
    refusal(team["rita"].client("s3").put_object, Bucket="tests", Key="team/no", Body=b"no")
    assert ("PutObject", "rita", "AccessDenied") in events("ResourceName", "arn:aws:s3:::tests/team/no")
    assert ("AddKey", "owner", None) in events("EventName", "AddKey")
    stranger = Key(house, {"AccessKeyId": "AKIASTRANGER00000000", "SecretAccessKey": "x"})
    refusal(stranger.client("sagemaker").list_training_jobs)
    assert events("AccessKeyId", stranger.id) == [("", "", "UnrecognizedClientException")]
    first = trail.lookup_events(MaxResults=1)
    second = trail.lookup_events(MaxResults=1, NextToken=first["NextToken"])
    assert first["Events"][0]["EventId"] != second["Events"][0]["EventId"]
    event = json.loads(trail.lookup_events(MaxResults=1)["Events"][0]["CloudTrailEvent"])
    assert event["sourceIPAddress"] == "127.0.0.1"
    assert refusal(team["rita"].client("cloudtrail").lookup_events)["Code"] == "AccessDeniedException"
    text = (house.data / "audit.log").read_text()
    for key in team.values():
        assert key.id in text and key.secret not in text
    verified = json.loads(house.shoal("audit", "verify", "--json").stdout)
    assert verified["ok"] and verified["lines"] >= text.count("\n")


def test_a_log_that_was_changed_is_found(new_house):
    house = new_house()
    house.shoal("keys", "add", "anna", "--role", "user")
    house.shoal("keys", "remove", "anna")
    house.stop()
    log = house.data / "audit.log"
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    log.write_text(lines[0].replace("AddKey", "ListKeys") + lines[1])
    found = house.shoal("audit", "verify", check=False)
    assert (found.returncode, found.stdout) == (1, "line 1 was changed\n2 lines: not as they were written\n")
    log.write_text(lines[0])
    assert "line 2 was removed" in house.shoal("audit", "verify", check=False).stdout
