"""Elastic jobs, under Horovod's names."""

from collections.abc import Mapping, Sequence

from horovod.runner.elastic.launcher import run_elastic

__all__ = ["gloo_run_elastic", "launch_gloo_elastic"]


def _get_min_start_hosts(settings) -> int:
    """Number of hosts that a job needs to start: one, as no common interfaces are looked for
    first.
    """
    return 1


def gloo_run_elastic(settings, env: Mapping[str, str], command: Sequence[str], executable: str | None = None) -> None:
    """Runs the command as an elastic job until it is over. `RuntimeError` if it failed."""
    run_elastic(settings, env, command)


launch_gloo_elastic = gloo_run_elastic
