"""Whatever a client gets wrong in a real request, it is told what, by the right error; and the
server lives.
"""

import itertools
import json
import os
import random

import pytest
from data import SHARED
from mutations import Requests, judge, mutated, pairs
from signed import Wire

RECORDING = SHARED.parent / "protocol/golden_requests.json"
COUNT = int(os.environ.get("SHOAL_MUTATIONS", "100000"))
# Printed with what fails.
SEED = int(os.environ.get("SHOAL_SEED") or random.randrange(1 << 32))


@pytest.fixture(scope="module")
def requests():
    if not RECORDING.exists():
        pytest.skip(f"needs ../shared/data and, beside it, {RECORDING}")
    return Requests(json.loads(RECORDING.read_text()))


def answer(wire, target, body):
    """Status, code and message; what was created is gone again, so that the next change of the
    request finds what the first found.
    """
    found = wire.call(target, body)
    prefix, operation = target.split(".")
    if found[0] == 200 and operation.startswith("Create"):
        noun = operation.removeprefix("Create")
        status, code, message = wire.call(f"{prefix}.Delete{noun}", {f"{noun}Name": body[f"{noun}Name"]})
        assert status == 200, f"{target} cannot be undone: {code}: {message}"
    return found


def test_every_change_of_a_real_request_gets_its_answer(new_house, requests):
    # A house of its own, without the S3 bucket that the requests name: what is there would let some
    # of them pass.
    wire = Wire(new_house("--default-bucket", "no-request-names-it").variables_for_clients())
    served, faults, asked = [], [], 0
    for target, body in requests:
        status, before, message = answer(wire, target, body)
        asked += 1
        assert status < 500, f"{target}: {before}: {message}"
        if before == "UnknownOperationException":
            continue
        mutants = requests.mutants(target, body)
        served.append((target, body, before, mutants))
    singles = [(target, body, before, mutant) for target, body, before, mutants in served for mutant in mutants]
    # All single changes if there is room for them, then pairs.
    random.Random(SEED).shuffle(singles)
    for target, body, before, mutant in singles[: COUNT - asked]:
        changed = mutated(body, mutant)
        if changed is None:
            continue
        status, code, message = answer(wire, target, changed)
        asked += 1
        wrong = f"status {status}" if status >= 500 else judge(mutant, code, message, before)
        if wrong:
            place = "/".join(map(str, mutant.path))[:200]
            faults.append(f"{target} {place} = {str(mutant.value)[:60]!r}: {wrong}; got {code}: {message[:300]}")
    streams = [(target, body, pairs(mutants, SEED)) for target, body, _, mutants in served if len(mutants) > 1]
    for target, body, stream in itertools.cycle(streams):
        if asked >= COUNT:
            break
        changed = mutated(body, *next(stream))
        asked += 1
        if changed is not None:
            status, code, message = answer(wire, target, changed)
            if status >= 500:
                faults.append(f"{target} {json.dumps(changed)[:500]}: {status} {code}: {message[:300]}")
    print(f"{asked} requests, {len(singles)} single changes of {len(served)} requests, SHOAL_SEED={SEED}")
    assert not faults, f"SHOAL_SEED={SEED}: {len(faults)} wrong answers, the first:\n" + "\n".join(faults[:20])
