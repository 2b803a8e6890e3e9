"""The state of this process's training: `state`, a single object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdistributed.modelparallel.torch.exceptions import NotInitializedError

if TYPE_CHECKING:
    from shoal.parallel import Mesh
    from smdistributed.modelparallel.torch.config import Config
    from smdistributed.modelparallel.torch.ranks import Groups

__all__ = ["State", "state"]


class State:
    """Empty until `smp.init`."""

    def __init__(self) -> None:
        self._cfg: Config | None = None
        self._mesh: Mesh | None = None
        self._groups: Groups | None = None
        self.rank = 0
        self.local_rank = 0
        self.local_size = 1
        #: The one `smp.DistributedModel` of the process, and its optimizer.
        self.model: Any = None
        self.optimizer: Any = None
        #: The checkpoint of `smp.resume_from_checkpoint`, until it can be loaded.
        self.loaded_model_state: Any = None
        self.loaded_optimizer_state: Any = None
        self.tracing = False
        #: Number of microbatches of the running step.
        self.microbatch_count = 1
        #: The pipeline of the running step, if there is one.
        self.engine: Any = None
        #: Number of steps so far.
        self.step_count = 0

    @property
    def initialized(self) -> bool:
        """Whether `smp.init` is done."""
        return self._groups is not None

    @property
    def cfg(self) -> Config:
        """The configuration."""
        return self._get(self._cfg)

    @property
    def mesh(self) -> Mesh:
        """The ranks' mesh."""
        return self._get(self._mesh)

    @property
    def groups(self) -> Groups:
        """Groups of ranks."""
        return self._get(self._groups)

    @staticmethod
    def _get(it: Any) -> Any:
        if it is None:
            raise NotInitializedError("smp.init() has not been called: call it first in the script")
        return it

    def set(self, cfg: Config, mesh: Mesh, groups: Groups) -> None:
        """Stores the results of `smp.init`."""
        self._cfg, self._mesh, self._groups = cfg, mesh, groups


#: The process's.
state = State()
