"""Requests to S3 that boto3 does not make, signed by hand; and how refusals are looked at."""

import contextlib
import hashlib
import hmac
import urllib.parse

import pytest
from botocore.exceptions import ClientError


@contextlib.contextmanager
def refused(code, status=None):
    with pytest.raises(ClientError) as error:
        yield
    answer = error.value.response
    assert answer["Error"]["Code"] == code, answer
    assert status in (None, answer["ResponseMetadata"]["HTTPStatusCode"]), answer


def sign(variables, method, path, headers, now, query=""):
    """Adds SigV4's headers to `headers`; path and query as they are sent, the query's pairs
    sorted.
    """
    now = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{variables['AWS_REGION']}/s3/aws4_request"
    headers.setdefault("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    headers.update({"host": urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc, "x-amz-date": now})
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{variables['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{variables['AWS_ACCESS_KEY_ID']}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
