"""How SageMaker's mixture of experts is configured."""

from dataclasses import dataclass

__all__ = ["MoEConfig"]

_BALANCING = ("sinkhorn", "aux_loss", "balanced", "none")


@dataclass
class MoEConfig:
    """Its values are checked; `torch.sagemaker.transform` refuses it, as the layers themselves
    are closed. Raises `ValueError` for another `moe_load_balancing`.
    """

    smp_moe: bool = True
    random_seed: int = 12345
    moe_load_balancing: str = "sinkhorn"
    global_token_shuffle: bool = False
    moe_all_to_all_dispatcher: bool = True
    moe_aux_loss_coeff: float = 0.001
    moe_z_loss_coeff: float = 0.001
    use_cpu_initialization: bool = False

    def __post_init__(self) -> None:
        if self.moe_load_balancing not in _BALANCING:
            raise ValueError(f"moe_load_balancing={self.moe_load_balancing!r}: it is one of {', '.join(_BALANCING)}")
