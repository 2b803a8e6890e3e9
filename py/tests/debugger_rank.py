"""A process with a framework that does checks of `smdebug`."""

import rank_checks

if __name__ == "__main__":
    rank_checks.serve()
