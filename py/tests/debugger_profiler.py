"""Checks of step times: what becomes of a step, the files, and scripts that know nothing of it."""

import json
import tempfile
from pathlib import Path

from debugger_automatic import ended, start
from smdebug.profiler.steps import MAX_PER_SECOND, Steps
from smdebug.profiler.timeline import Timeline


class Kept:
    """A timeline in memory."""

    def __init__(self):
        self.events = []

    def add(self, rank, begin_us, duration_us, arguments):
        """Keeps it."""
        self.events.append((rank, begin_us, duration_us, arguments))

    def write(self, now_us):
        """Has no files."""


def parts_are_of_their_step():
    """Sums of parts, the first step's beginning, and the rank."""
    kept = Kept()
    steps = Steps(kept, 100.0, 5_000_000, lambda: 3)
    steps.spent("data", 101.0, 101.25)
    steps.spent("backward", 101.5, 101.75)
    steps.spent("data", 101.75, 101.875)
    steps.end(102.0)
    steps.end(103.0)
    assert kept.events == [
        (3, 6_000_000, 1_000_000, {"step_num": 0, "data_us": 375_000, "backward_us": 250_000}),
        (3, 7_000_000, 1_000_000, {"step_num": 1}),
    ], kept.events


def waits_of_backward_passes_are_communication():
    """What a pass took after it had launched its last reduction, and what it waited before."""
    kept = Kept()
    steps = Steps(kept, 0.0, 0)
    steps.begin(0.0)
    # Nothing is launched; then the tail; then a wait in Python that is a part of the tail; then one
    # before the launch.
    steps.backward(0.0, 0.5, steps.communicated(), 0.0)
    steps.end(1.0)
    steps.backward(1.0, 1.5, steps.communicated(), 1.25)
    steps.end(2.0)
    communicated = steps.communicated()
    steps.spent("communication", 2.375, 2.5)
    steps.backward(2.0, 2.5, communicated, 2.25)
    steps.end(3.0)
    communicated = steps.communicated()
    steps.spent("communication", 3.0, 3.25)
    steps.backward(3.0, 3.5, communicated, 3.5)
    steps.end(4.0)
    reported = [(event[3]["backward_us"], event[3].get("communication_us")) for event in kept.events]
    assert reported == [(500_000, None), (250_000, 250_000), (250_000, 250_000), (250_000, 250_000)], reported


def fast_steps_are_counted_and_slow_ones_are_seen():
    """Events are bounded, sums are exact, and no slow step is lost."""
    kept, now = Kept(), 0.0
    steps = Steps(kept, now, 0)
    steps.begin(now)
    for number in range(5300):
        steps.spent("data", now, now + 0.0005)
        now += 0.05 if number % 1000 == 999 else 0.002
        steps.end(now)
    steps.close(now)
    assert len(kept.events) <= MAX_PER_SECOND * (now + 1) + 5, len(kept.events)
    slow = [event[3]["step_num"] for event in kept.events if event[2] == 50_000]
    assert slow == [999, 1999, 2999, 3999, 4999], slow
    count = sum(event[3].get("steps", 1) for event in kept.events)
    total = sum(event[3].get("total_us", event[2]) for event in kept.events)
    data = sum(event[3]["data_us"] for event in kept.events)
    assert (count, total, data) == (5300, round(1e6 * now), 5300 * 500), (count, total, data)


def files_are_complete_and_few():
    """Files appear whole, soon at first, then each minute."""
    folder = tempfile.mkdtemp()
    begin = 1_700_000_000_000_000
    timeline = Timeline(folder, "algo-1", begin)
    for second in range(200):
        timeline.add(0, begin + second * 1_000_000, 1_000_000, {"step_num": second})
    timeline.write(begin + 200_000_000)
    files = sorted(Path(folder, "framework/pevents/2023111422").iterdir())
    assert 6 <= len(files) <= 10, files
    events = [event for file in files for event in json.loads(file.read_text()) if event["ph"] == "X"]
    assert [event["args"]["step_num"] for event in events] == list(range(200))
    first = json.loads(files[0].read_text())[0]
    assert first["args"]["start_time_since_epoch_in_micros"] == begin
    assert files[0].name.endswith("-algo-1_pythontimeline.json"), files


def _profiled(script, *arguments, config=True, **more):
    """Events of a script with the platform's profiler."""
    folder = tempfile.mkdtemp()
    path = Path(folder, "profilerconfig.json")
    path.write_text(json.dumps({"DisableProfiler": not config, "LocalPath": folder}))
    process, out = start(script, *arguments, config=False, SMPROFILER_CONFIG_PATH=str(path), **more)
    text = ended(process, out)[1]
    files = sorted(Path(folder).glob("framework/pevents/*/*.json"))
    return [event for file in files for event in json.loads(file.read_text()) if event["ph"] == "X"], text


def torch_script():
    """A script's steps, and which of them waited for its batch."""
    events, text = _profiled("debugger_script_steps.py", "30", "40", RANK="2")
    assert text == "", text
    assert sum(event["args"].get("steps", 1) for event in events) == 40, events
    waits = [event["args"]["data_us"] for event in events if event["args"]["step_num"] == 30]
    assert len(waits) == 1 and waits[0] >= 200_000, events
    assert {event["args"]["rank"] for event in events} == {2}
    assert all(event["args"]["backward_us"] > 0 and event["args"]["optimizer_us"] > 0 for event in events[5:]), events
    assert _profiled("debugger_script_steps.py", "3", "4", config=False)[0] == []


def _steps(script, *arguments, **more):
    events, text = _profiled(script, *arguments, **more)
    assert {event["args"]["rank"] for event in events} == {0}, text
    return sum(event["args"].get("steps", 1) for event in events)


def xgboost_script():
    """Rounds are steps."""
    assert _steps("debugger_script_xgboost.py", "train") == 12
    assert _steps("debugger_script_xgboost.py", "estimator") == 12


def keras_script():
    """Batches are steps."""
    assert _steps("debugger_script_keras.py", TF_CPP_MIN_LOG_LEVEL="3") == 20
