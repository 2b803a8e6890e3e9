"""Botocore plugin, loaded in the user's Python by BOTOCORE_EXPERIMENTAL__PLUGINS.

What an SDK addresses to amazonaws.com by name goes to AWS_ENDPOINT_URL like everything else. And clients that look seldom look
sooner and oftener: SageMaker's SDK v2 waits 5 s before its first look at a job and 10 s between looks at its logs, SDK v3 5 s,
waiters (boto3's, and `aws sagemaker wait`) up to two minutes. The server is next door, and its answers to them are held back
until there is news. SHOAL_SDK_POLLING=keep leaves everyone's own pace.
"""

import os
import sys
from urllib.parse import urlsplit


def initialize_client_plugin(client):
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not client.meta.endpoint_url.startswith(endpoint):
        client.meta.events.register_first("before-sign.*.*", _redirect)
    if endpoint and os.environ.get("SHOAL_SDK_POLLING") != "keep":
        _quicken_sdks()
        if client.meta.service_model.service_name == "sagemaker":
            _quicken_waiters(client)


def _redirect(request, **_):
    url = urlsplit(request.url)
    if (url.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        request.url = url._replace(scheme=endpoint.scheme, netloc=endpoint.netloc).geturl()


def _quicken_sdks():
    """Shortens the default of `poll` where the SDKs have it; one that has it elsewhere keeps its pace."""
    v2, v3 = sys.modules.get("sagemaker.session"), sys.modules.get("sagemaker.core.resources")
    session = getattr(v2, "Session", None)
    waits_v3 = [getattr(getattr(v3, job, None), "wait", None) for job in ("TrainingJob", "HyperParameterTuningJob")]
    for function, seconds in (
        (getattr(v2, "_wait_until", None), 0.05),
        (getattr(session, "logs_for_job", None), 1),
        (getattr(session, "wait_for_job", None), 0.5),
        (getattr(session, "wait_for_tuning_job", None), 0.5),
        *((getattr(wait, "__wrapped__", None), 1) for wait in waits_v3),
    ):
        code, defaults = getattr(function, "__code__", None), getattr(function, "__defaults__", None)
        if not code or not defaults:
            continue
        names = code.co_varnames[: code.co_argcount][-len(defaults) :]
        function.__defaults__ = tuple(seconds if name == "poll" else value for name, value in zip(names, defaults))


def _quicken_waiters(client):
    """A waiter's own pause becomes a second, and its patience stays what it was; a pause that the user gives goes first."""
    config = getattr(client, "_get_waiter_config", dict)()
    for waiter in config.get("waiters", {}).values():
        if waiter.get("delay", 0) > 1:
            waiter["maxAttempts"], waiter["delay"] = waiter["maxAttempts"] * waiter["delay"], 1
