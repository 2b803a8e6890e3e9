"""AWS's files of framework events: Chrome traces below `framework/pevents`, a folder for each hour.

Events wait in memory. A file is complete when it appears: in the first minute soon, so that a short
training has some, later each minute, or when it is large.
"""

import json
import os
import time

#: Seconds after the start at which a file ends; then every `_INTERVAL`.
_FIRST = (2, 5, 10, 20, 40)
_INTERVAL = 60
_MAX_BYTES = 10 << 20
#: The one kind of event.
PHASE = "Step:ModeKeys.TRAIN"


class Timeline:
    """Events of this process. Times are of `time.time()`, in microseconds."""

    def __init__(self, directory: str, node: str, now_us: int):
        self._directory = os.path.join(directory, "framework", "pevents")
        self._node, self._pid = node, os.getpid()
        self._start_us, self._lines, self._bytes = now_us, [], 0
        self._due_us = now_us + _FIRST[0] * 1_000_000
        # A reader sees that steps are to come.
        os.makedirs(self._directory, exist_ok=True)

    def add(self, rank: int, begin_us: int, duration_us: int, arguments: dict) -> None:
        """Adds a step that has just ended."""
        event = {
            "name": PHASE,
            "ph": "X",
            "pid": 1,
            "tid": self._pid,
            "ts": begin_us - self._start_us,
            "dur": duration_us,
            "args": {"rank": rank, **arguments},
        }
        line = json.dumps(event, separators=(",", ":"))
        self._lines.append(line)
        self._bytes += len(line) + 2
        end_us = begin_us + duration_us
        if end_us >= self._due_us or self._bytes >= _MAX_BYTES:
            self.write(end_us)

    def write(self, now_us: int) -> None:
        """Completes a file, if there is anything for it."""
        ends = (self._start_us + seconds * 1_000_000 for seconds in _FIRST)
        self._due_us = next((end for end in ends if end > now_us), now_us + _INTERVAL * 1_000_000)
        lines, self._lines, self._bytes = self._lines, [], 0
        if not lines:
            return
        meta = lambda name, pid, arguments: json.dumps({"name": name, "ph": "M", "pid": pid, "args": arguments})
        head = [
            meta("process_name", 0, {"start_time_since_epoch_in_micros": self._start_us}),
            meta("process_sort_index", 0, {"sort_index": 0}),
            meta("process_name", 1, {"name": PHASE}),
            meta("process_sort_index", 1, {"sort_index": 1}),
        ]
        hour = os.path.join(self._directory, time.strftime("%Y%m%d%H", time.gmtime(now_us / 1e6)))
        os.makedirs(hour, exist_ok=True)
        path = os.path.join(hour, f"{now_us}_{self._pid}-{self._node}_pythontimeline.json")
        with open(path + ".tmp", "w") as file:
            file.write("[\n" + ",\n".join(head + lines) + "\n]\n")
        os.rename(path + ".tmp", path)
