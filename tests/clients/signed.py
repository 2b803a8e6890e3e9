"""Signed requests without a client's checks and conversions: what is written here is what the
server gets. A thousand a second.
"""

import datetime
import hashlib
import hmac
import http.client
import json
import urllib.parse

SCOPES = {"SageMaker": "sagemaker", "Logs_20140328": "logs", "GraniteServiceVersion20100801": "monitoring"}


class Wire:
    """One connection with the keys of a server."""

    def __init__(self, variables):
        self.host = urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc
        self.key, self.secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        self.region = variables["AWS_REGION"]
        self.connection = http.client.HTTPConnection(self.host, timeout=60)

    def call(self, target, body):
        """Status, error code ('' for none) and message of an awsJson request."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/x-amz-json-1.1", "host": self.host, "x-amz-target": target}
        self.connection.request("POST", "/", data, self._signed(headers, data, SCOPES[target.split(".")[0]]))
        response = self.connection.getresponse()
        answer = response.read()
        if response.status == 200:
            return 200, "", ""
        answer = json.loads(answer)
        return response.status, answer["__type"], answer["message"]

    def _signed(self, headers, data, service):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers["x-amz-date"] = now
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(data).hexdigest()}"
        scope = f"{now[:8]}/{self.region}/{service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers
