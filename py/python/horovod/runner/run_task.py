"""What each process of `horovod.run` runs."""

import sys

from horovod.runner.calls import answer

if __name__ == "__main__":
    sys.exit(answer(sys.argv[1]))
