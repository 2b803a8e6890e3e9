"""Botocore plugin: what an SDK addresses to amazonaws.com by name goes to AWS_ENDPOINT_URL like everything else."""

import os
from urllib.parse import urlsplit


def initialize_client_plugin(client):
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not client.meta.endpoint_url.startswith(endpoint):
        client.meta.events.register_first("before-sign.*.*", _redirect)


def _redirect(request, **_):
    url = urlsplit(request.url)
    if (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        request.url = url._replace(scheme=endpoint.scheme, netloc=endpoint.netloc).geturl()
