"""Elastic training in place: ranks leave and come while the others go on, with their processes.

    state = State(model=model, optimizer=optimizer, samples=Samples(len(data), workers=8, batch=16))

    def train(state):
        ...                                   # builds what depends on the group, then trains
            state.samples.finish()
            state.commit()

    run(train, state)

When a rank is lost, the others go back to their last commit, form the group anew and call `train`
again. A process that is started with SHOAL_COMM_JOINS=1 and the meeting place of the others is
taken in at their next commit, and gets the state from them. A `Roster` says which hosts are to go.
`shoal.torch.elastic` is this for `torch.distributed`; `docs/elastic.md` has the whole.
"""

from shoal.elastic.loop import Settings, run
from shoal.elastic.roster import FileRoster, Roster, parse_hosts
from shoal.elastic.samples import Part, Samples
from shoal.elastic.state import Dismissed, RanksChanged, State, TooFewRanks
from shoal.elastic.world import World

__all__ = [
    "Dismissed",
    "FileRoster",
    "Part",
    "RanksChanged",
    "Roster",
    "Samples",
    "Settings",
    "State",
    "TooFewRanks",
    "World",
    "parse_hosts",
    "run",
]
