"""The launcher's part of elastic training: which hosts there are, which worker is where, and who
tells the workers.
"""

import sys


def main(options) -> int:
    """An elastic job, by the options of `horovodrun`. The exit code: 1 for a job that failed,
    which is said on standard error.
    """
    from horovod.runner.elastic.launcher import run_elastic, settings_of

    try:
        run_elastic(settings_of(options), getattr(options, "environment", {}), options.command)
    except (RuntimeError, TimeoutError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return 1
    return 0
