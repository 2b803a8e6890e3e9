"""`import smdistributed.modelparallel.torch as smp`: SageMaker's model parallel library, version
1, on Shoal's process groups. `docs/model-parallel.md` shows it.
"""

from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch import amp, nn, optimizers, patches
from smdistributed.modelparallel.torch.checkpoint import load, resume_from_checkpoint, save, save_checkpoint
from smdistributed.modelparallel.torch.comm import (
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from smdistributed.modelparallel.torch.creation import (
    delay_param_initialization,
    model_creation,
    partition,
    set_partition,
    set_tensor_parallelism,
    tensor_parallelism,
)
from smdistributed.modelparallel.torch.launch import init
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.ranks import (
    CommGroup,
    RankType,
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_group,
    get_world_process_group,
    is_initialized,
    is_tracing,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.torch.recompute import set_activation_checkpointing
from smdistributed.modelparallel.torch.registry import tp_register, tp_register_with_module
from smdistributed.modelparallel.torch.state_mod import state
from smdistributed.modelparallel.torch.step import StepOutput, step

WORLD, MP_GROUP, DP_GROUP = CommGroup.WORLD, CommGroup.MP_GROUP, CommGroup.DP_GROUP
PP_GROUP, TP_GROUP, RDP_GROUP = CommGroup.PP_GROUP, CommGroup.TP_GROUP, CommGroup.RDP_GROUP
WORLD_RANK, MP_RANK, DP_RANK = RankType.WORLD_RANK, RankType.MP_RANK, RankType.DP_RANK
PP_RANK, TP_RANK, RDP_RANK = RankType.PP_RANK, RankType.TP_RANK, RankType.RDP_RANK

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
