"""Botocore plugin, loaded in the user's Python by BOTOCORE_EXPERIMENTAL__PLUGINS.

What an SDK addresses to amazonaws.com by name goes to AWS_ENDPOINT_URL like everything else. And
clients that look seldom look oftener (shoal_polling.py), unless SHOAL_SDK_POLLING=keep leaves
everyone's own pace.
"""

import os
from urllib.parse import urlsplit

import shoal_polling


def initialize_client_plugin(client):
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not client.meta.endpoint_url.startswith(endpoint):
        client.meta.events.register_first("before-sign.*.*", _redirect)
    if endpoint and os.environ.get("SHOAL_SDK_POLLING") != "keep":
        shoal_polling.quicken(client)


def _redirect(request, **_):
    url = urlsplit(request.url)
    if (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        request.url = url._replace(scheme=endpoint.scheme, netloc=endpoint.netloc).geturl()
