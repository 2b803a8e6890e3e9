"""Collections: tensors that are saved, and read, together."""

import json
import re

from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError


class CollectionKeys:
    """Names of collections that are there without being made."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


#: Single numbers: TensorBoard shows them as curves, and there are no reductions of them.
SCALAR_COLLECTIONS = {
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.FEATURE_IMPORTANCE,
    CollectionKeys.AVERAGE_SHAP,
    CollectionKeys.SM_METRICS,
}
_EVERYWHERE = {
    CollectionKeys.ALL: [],
    CollectionKeys.DEFAULT: [],
    CollectionKeys.LOSSES: [],
}
#: The collections of a framework, with their patterns.
PYTORCH_COLLECTIONS = _EVERYWHERE | {
    CollectionKeys.WEIGHTS: ["^(?!gradient).*weight"],
    CollectionKeys.BIASES: ["^(?!gradient).*bias"],
    CollectionKeys.GRADIENTS: ["^gradient"],
    CollectionKeys.LOSSES: ["[Ll]oss_(?!input).*output"],
}
TENSORFLOW_COLLECTIONS = _EVERYWHERE | {
    CollectionKeys.WEIGHTS: [],
    CollectionKeys.BIASES: ["^(?!gradient).*bias"],
    CollectionKeys.GRADIENTS: [],
    CollectionKeys.METRICS: [],
    CollectionKeys.INPUTS: [],
    CollectionKeys.OUTPUTS: [],
    CollectionKeys.LAYERS: [],
    CollectionKeys.SM_METRICS: [],
    CollectionKeys.OPTIMIZER_VARIABLES: [],
}
XGBOOST_COLLECTIONS = _EVERYWHERE | {
    CollectionKeys.HYPERPARAMETERS: ["^hyperparameters/.*$"],
    # Wider than AWS's, whose leave out what estimators give: `validation_0-logloss`, `eval-ndcg@5`.
    CollectionKeys.METRICS: [r"^[\w.]+-[\w.@-]+$"],
    # `auc` and `map` grow: they are no losses.
    CollectionKeys.LOSSES: [r"^[\w.]+-.+(?<!(auc|map))$"],
    CollectionKeys.PREDICTIONS: ["^predictions$"],
    CollectionKeys.LABELS: ["^labels$"],
    CollectionKeys.FEATURE_IMPORTANCE: ["^feature_importance/.*"],
    CollectionKeys.AVERAGE_SHAP: ["^average_shap/.*[^/bias]$"],
    CollectionKeys.FULL_SHAP: ["^full_shap/.*[^/bias]$"],
    CollectionKeys.TREES: ["^trees/.*"],
}


class Collection:
    """Names, and patterns that are looked for in names; when they are saved, and what of them.

    Of what is None, the hook's applies.
    """

    def __init__(
        self,
        name,
        include_regex=None,
        tensor_names=None,
        reduction_config=None,
        save_config=None,
        save_histogram=True,
    ):
        self.name = name
        self.include_regex = list(include_regex or ())
        self.tensor_names = set(tensor_names or ())
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram
        #: Modules whose inputs and outputs belong to it: a pair of truth values each.
        self.modules = {}

    def include(self, t) -> None:
        """Adds a pattern, or several."""
        if not isinstance(t, (str, list)):
            raise SMDebugTypeError("Can only include str or list")
        self.include_regex.extend([t] if isinstance(t, str) else t)

    def add_module_tensors(self, module, inputs=False, outputs=True) -> None:
        """Adds inputs or outputs of a module of a registered model."""
        self.modules[module] = (inputs, outputs)

    def add_keras_layer(self, layer, inputs=False, outputs=True) -> None:
        """Adds inputs or outputs of a layer."""
        for asked, kind in ((inputs, "inputs"), (outputs, "outputs")):
            if asked:
                self.include(f"{layer.name}/{kind}")

    def add_tensor_name(self, tname) -> None:
        """Adds a tensor by its name."""
        self.tensor_names.add(tname)

    def has_tensor_name(self, tname) -> bool:
        """Whether it was added, or found by a pattern."""
        return tname in self.tensor_names

    def remove_tensor_name(self, tname) -> None:
        """Takes a tensor out."""
        self.tensor_names.discard(tname)

    def matches(self, tname) -> bool:
        """Whether the tensor belongs to it."""
        return tname in self.tensor_names or any(re.search(pattern, tname) for pattern in self.include_regex)

    @property
    def save_config(self):
        """When it is saved."""
        return self._save_config

    @save_config.setter
    def save_config(self, value):
        if isinstance(value, dict):
            value = SaveConfig(mode_save_configs=value)
        if not isinstance(value, (SaveConfig, type(None))):
            raise SMDebugTypeError(
                f"save_config={value} must be of type SaveConfig or type Dict[ModeKeys, SaveConfigMode]"
            )
        self._save_config = value

    @property
    def reduction_config(self):
        """What of it is saved."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, value):
        if not isinstance(value, (ReductionConfig, type(None))):
            raise SMDebugTypeError(f"reduction_config={value} must be of type ReductionConfig")
        self._reduction_config = value

    def to_json_dict(self) -> dict:
        """As it stands in files."""
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config.to_json_dict() if self.reduction_config else None,
            "save_config": self.save_config.to_json_dict() if self.save_config else None,
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params):
        """From what `to_json_dict` gives."""
        if not isinstance(params, dict):
            raise SMDebugValueError(f"params={params} must be dict")
        return cls(
            params.get("name"),
            params.get("include_regex"),
            params.get("tensor_names"),
            ReductionConfig.from_dict(params.get("reduction_config")),
            SaveConfig.from_dict(params.get("save_config")),
            params.get("save_histogram", True),
        )

    @classmethod
    def from_json(cls, json_str: str):
        """From JSON."""
        return cls.from_dict(json.loads(json_str))

    def __eq__(self, other):
        return isinstance(other, Collection) and self.to_json_dict() == other.to_json_dict()

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return str(self.to_json_dict())

    def __repr__(self):
        return f"<class Collection: name={self.name}>"
