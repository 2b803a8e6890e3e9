"""Names by which scripts recognise the layers of a transformed model, in FSDP's wrapping
policies and for activation checkpoints.
"""

from torch import nn
from torch.sagemaker.layers import marked

__all__ = ["TETransformerLayer", "TransformerLMHead", "TransformerLayer"]


class _Transformed(type(nn.Module)):
    def __instancecheck__(cls, it: object) -> bool:
        return isinstance(it, nn.Module) and it in marked


class TransformerLayer(nn.Module, metaclass=_Transformed):
    """Every transformer layer of a model that `torch.sagemaker.transform` was given is an
    instance. It cannot be made by itself.
    """

    def __init__(self, *_arguments, **_named) -> None:
        raise NotImplementedError(
            f"torch.sagemaker: {type(self).__name__} is a layer of SageMaker's closed library; use Hugging Face's layers or torch.nn.TransformerEncoderLayer, and "
            "torch.sagemaker.transform for tensor parallelism"
        )


class TETransformerLayer(TransformerLayer):
    """The same: layers of Transformer Engine have no counterpart here."""


class TransformerLMHead(nn.Module):
    """SageMaker's own model, which is not to be had: models stay Hugging Face's."""

    def __init__(self, *_arguments, **_named) -> None:
        raise NotImplementedError(
            "torch.sagemaker: TransformerLMHead is a model of SageMaker's closed library; use Hugging Face's AutoModelForCausalLM"
        )
