"""Botocore plugin, loaded in the user's Python by BOTOCORE_EXPERIMENTAL__PLUGINS.

What an SDK addresses to amazonaws.com by name goes to AWS_ENDPOINT_URL like everything else. And SageMaker's SDK v2, which
waits 5 s before its first look at a job and 10 s between looks at its logs, looks at once and every second: the server is next
door, and its answers are held back until there is news. SHOAL_SDK_POLLING=keep leaves the SDK's own pace.
"""

import os
import sys
from urllib.parse import urlsplit


def initialize_client_plugin(client):
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not client.meta.endpoint_url.startswith(endpoint):
        client.meta.events.register_first("before-sign.*.*", _redirect)
    if endpoint and os.environ.get("SHOAL_SDK_POLLING") != "keep":
        _quicken(sys.modules.get("sagemaker.session"))


def _redirect(request, **_):
    url = urlsplit(request.url)
    if (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        request.url = url._replace(scheme=endpoint.scheme, netloc=endpoint.netloc).geturl()


def _quicken(sdk):
    """Shortens the default of `poll` where SDK v2 has it; an SDK that has it elsewhere keeps its pace."""
    session = getattr(sdk, "Session", None)
    for function, seconds in ((getattr(sdk, "_wait_until", None), 0.05), (getattr(session, "logs_for_job", None), 1)):
        code, defaults = getattr(function, "__code__", None), getattr(function, "__defaults__", None)
        if not code or not defaults:
            continue
        names = code.co_varnames[: code.co_argcount][-len(defaults) :]
        function.__defaults__ = tuple(seconds if name == "poll" else value for name, value in zip(names, defaults))
