"""Requests that were signed and then changed: each is refused, by every service, with its own
code.
"""

import datetime
import http.client
import urllib.parse

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

JSON = {"content-type": "application/x-amz-json-1.1"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
# Method, path, headers, body, and the code for a signature that does not fit.
REQUESTS = {
    "sagemaker": (
        "POST",
        "/",
        {**JSON, "x-amz-target": "SageMaker.ListTrainingJobs"},
        b'{"MaxResults": 5}',
        "InvalidSignatureException",
    ),
    "logs": (
        "POST",
        "/",
        {**JSON, "x-amz-target": "Logs_20140328.DescribeLogStreams"},
        b'{"logGroupName": "/aws/sagemaker/TrainingJobs"}',
        "InvalidSignatureException",
    ),
    "sts": ("POST", "/", FORM, b"Action=GetCallerIdentity&Version=2011-06-15", "SignatureDoesNotMatch"),
    "iam": ("POST", "/", FORM, b"Action=GetRole&RoleName=any&Version=2010-05-08", "SignatureDoesNotMatch"),
    "s3": ("PUT", "/tests/forgery/a.txt?x-id=PutObject", {"x-amz-meta-who": "me"}, b"content", "SignatureDoesNotMatch"),
}
SERVICES = pytest.mark.parametrize("service", REQUESTS)


@pytest.fixture
def credentials(house, jobs):
    variables = house.variables_for_clients()
    return Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])


def endpoint(house):
    return house.variables_for_clients()["AWS_ENDPOINT_URL"]


def signed(house, credentials, service, method, path, headers, body):
    """Method, path, headers and body as a client sends them."""
    request = AWSRequest(
        method, endpoint(house) + path, {**headers, "host": urllib.parse.urlsplit(endpoint(house)).netloc}, body
    )
    sign = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    sign(credentials, service, "us-east-1").add_auth(request)
    return method, path, dict(request.headers), body


def send(house, method, path, headers, body):
    """Status and body of what is sent just so."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint(house)).netloc, timeout=120)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def other_digit(text):
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def headers_with(changes):
    return lambda method, path, headers, body: (method, path, {**headers, **changes(headers)}, body)


def authorization(change):
    return headers_with(lambda headers: {"Authorization": change(headers["Authorization"])})


def one_more_second(headers):
    date = headers["X-Amz-Date"]
    return {"X-Amz-Date": f"{date[:-3]}{(int(date[-3:-1]) + 1) % 60:02}Z"}


FORGERIES = {
    "another signature": authorization(other_digit),
    "another day": headers_with(one_more_second),
    "another host": headers_with(lambda headers: {"host": "example.com"}),
    "another content": lambda method, path, headers, body: (method, path, headers, body[:-1] + b"X"),
    "more content": lambda method, path, headers, body: (method, path, headers, body + b" "),
    "another path": lambda method, path, headers, body: (
        method,
        path.replace("/a.txt", "/b.txt") if "a.txt" in path else "/x",
        headers,
        body,
    ),
    "another query": lambda method, path, headers, body: (
        method,
        f"{path}{'&' if '?' in path else '?'}acl=",
        headers,
        body,
    ),
    "another method": lambda method, path, headers, body: ("DELETE" if method == "PUT" else "PUT", path, headers, body),
    "fewer signed headers": authorization(lambda text: text.replace("SignedHeaders=", "SignedHeaders=x;")),
    "another region": authorization(lambda text: text.replace("/us-east-1/", "/eu-west-1/")),
    "another key": authorization(lambda text: text.replace("Credential=AKIA", "Credential=AKIB")),
}
# Where the answer is not the service's word for a signature that does not fit.
OTHERWISE = {
    ("s3", "another content"): "XAmzContentSHA256Mismatch",
    ("s3", "more content"): "XAmzContentSHA256Mismatch",
    ("s3", "another key"): "InvalidAccessKeyId",
    ("sagemaker", "another key"): "UnrecognizedClientException",
    ("logs", "another key"): "UnrecognizedClientException",
    ("sts", "another key"): "InvalidClientTokenId",
    ("iam", "another key"): "InvalidClientTokenId",
}


@SERVICES
def test_what_is_signed_is_served(house, credentials, service):
    *request, _ = REQUESTS[service]
    status, body = send(house, *signed(house, credentials, service, *request))
    assert status == 200, body


@SERVICES
@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_was_changed_is_refused(house, credentials, service, forgery):
    *request, code = REQUESTS[service]
    status, body = send(house, *FORGERIES[forgery](*signed(house, credentials, service, *request)))
    assert 400 <= status < 500 and OTHERWISE.get((service, forgery), code) in body, (status, body)


@SERVICES
def test_what_is_not_signed_is_refused(house, credentials, service):
    *request, _ = REQUESTS[service]
    method, path, headers, body = signed(house, credentials, service, *request)
    del headers["Authorization"]
    status, said = send(house, method, path, headers, body)
    assert status in (400, 403), (status, said)


@pytest.mark.parametrize(
    "service, name, value",
    [
        ("sagemaker", "x-amz-target", "SageMaker.StopTrainingJob"),
        ("logs", "x-amz-target", "Logs_20140328.GetLogEvents"),
        ("s3", "x-amz-copy-source", "/tests/forgery/secret.txt"),
        ("s3", "x-amz-meta-more", "unsigned"),
    ],
)
def test_what_means_something_must_be_signed(house, credentials, service, name, value):
    """A header that was put in on the way."""
    method, path, headers, body, _ = REQUESTS[service]
    headers = {key: text for key, text in headers.items() if key != name}
    method, path, headers, body = signed(house, credentials, service, method, path, headers, body)
    status, said = send(house, method, path, {**headers, name: value}, body)
    assert status in (400, 403), (status, said)


def presigned(house, method="get_object", **options):
    s3 = house.client("s3", config=botocore.config.Config(signature_version="s3v4"))
    return s3.generate_presigned_url(method, Params={"Bucket": "tests", "Key": "forgery/signed.txt"}, **options)


URL_FORGERIES = {
    "another key": lambda url: url.replace("signed.txt", "secret.txt"),
    "another signature": other_digit,
    "a longer life": lambda url: url.replace("X-Amz-Expires=3600", "X-Amz-Expires=36000"),
    "another day": lambda url: url.replace("X-Amz-Date=20", "X-Amz-Date=21"),
    "one more parameter": lambda url: url + "&response-content-type=text%2Fhtml",
    "no signature": lambda url: url.split("&X-Amz-Signature")[0],
    "nothing": lambda url: url.split("?")[0],
}


def fetch(url, method="GET"):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=120)
    connection.request(method, f"{parts.path}?{parts.query}", b"x" if method == "PUT" else None)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_presigned_url_opens_what_it_names_and_nothing_else(house, jobs):
    jobs.put("forgery/signed.txt", "signed")
    jobs.put("forgery/secret.txt", "secret")
    url = presigned(house)
    assert fetch(url) == (200, "signed")
    for forgery, change in URL_FORGERIES.items():
        status, body = fetch(change(url))
        assert status in (400, 403) and "secret" not in body.replace("secret.txt", ""), (forgery, status, body)
    for method in ("PUT", "DELETE"):
        status, body = fetch(url, method)
        assert status == 403, (method, status, body)
    assert jobs.s3.get_object(Bucket="tests", Key="forgery/signed.txt")["Body"].read() == b"signed"


def test_a_presigned_url_has_an_end(house, jobs, monkeypatch):
    jobs.put("forgery/signed.txt", "signed")
    past = botocore.auth.get_current_datetime() - datetime.timedelta(minutes=5)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: past)
    assert fetch(presigned(house, ExpiresIn=3600)) == (200, "signed")
    status, body = fetch(presigned(house, ExpiresIn=60))
    assert status == 403 and "expired" in body.lower(), (status, body)
