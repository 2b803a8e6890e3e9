"""Whether trials look for new files when they are asked."""

from contextlib import contextmanager


@contextmanager
def _refreshing(trials, is_on: bool):
    trials = trials if isinstance(trials, list) else [trials]
    before = [trial.dynamic_refresh for trial in trials]
    for trial in trials:
        trial.dynamic_refresh = is_on
    try:
        yield trials
    finally:
        for trial, was_on in zip(trials, before, strict=True):
            trial.dynamic_refresh = was_on


def no_refresh(trials):
    """Within, trials have what they had before."""
    return _refreshing(trials, False)


def refresh(trials):
    """Within, trials look for new files."""
    return _refreshing(trials, True)
