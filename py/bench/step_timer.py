"""What the profiler's calls cost a step of training, in microseconds: `python step_timer.py`, with
`PYTHONPATH=../python` where the package is not installed. Prints the least of five runs of 20,000 steps.
"""

import json
import os
import tempfile
import time
from pathlib import Path

STEPS = 20_000


def main() -> None:
    folder = tempfile.mkdtemp()
    path = Path(folder, "profilerconfig.json")
    path.write_text(json.dumps({"LocalPath": folder}))
    os.environ["SMPROFILER_CONFIG_PATH"] = str(path)
    from smdebug.profiler.steps import OBSERVER

    OBSERVER.start()

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            now = time.perf_counter()
            OBSERVER.spent("data", now)
            OBSERVER.spent("backward", now)
            OBSERVER.spent("optimizer", now)
            OBSERVER.call("end", now)
        return 1e6 * (time.perf_counter() - begin) / STEPS

    print(f"{min(run() for _ in range(5)):.1f} us a step")


if __name__ == "__main__":
    main()
