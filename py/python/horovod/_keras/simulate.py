"""Large batch simulation with Keras: `SHOAL_SIMULATE_INSTANCES` and `shoal.keras.LargeBatch`."""

from __future__ import annotations

from horovod._keras.keras2 import note
from horovod.common import simulation
from horovod.common.engine import current
from shoal.parallel import Accumulation
from shoal.parallel.simulated import rate_note

__all__ = ["passes", "passes_for"]


def passes_for(workers: int) -> int:
    """How many passes a rank of this world runs for each step of `workers` workers;
    `shoal.parallel.Invalid` where ranks do not divide them.
    """
    return Accumulation(workers, current().size).passes()


def passes() -> int:
    """The passes that the job asks for: 1 unless it names instances to simulate. Prints a note
    once.
    """
    if not simulation.is_requested_for("a hvd.DistributedOptimizer"):
        return 1
    engine, workers = current(), simulation.workers()
    number = passes_for(workers)
    if engine.rank == 0 and number > 1:
        rates = rate_note(simulation.rate_factor(), workers, "hvd.size()")
        note(
            f"SHOAL_SIMULATE_INSTANCES: {engine.size} ranks train as {workers} would, in {number} passes for each step of the optimizer; "
            f"iterations and learning rate schedules count steps; hvd.size() is still {engine.size}: {rates}"
        )
    return number
