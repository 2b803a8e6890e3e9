"""Small things that scripts import."""

from __future__ import annotations

from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["rmsg"]


def rmsg(text: object) -> str:
    """A message with the rank before it."""
    if not state.initialized:
        return str(text)
    from smdistributed.modelparallel.torch import ranks

    return f"[{ranks.rank()}, pp {ranks.pp_rank()}, tp {ranks.tp_rank()}, rdp {ranks.rdp_rank()}] {text}"
