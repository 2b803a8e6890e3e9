"""The hook for XGBoost: a round is a step, and what is saved is computed when it is due."""

import numpy as np
import xgboost

from smdebug.core.collection import XGBOOST_COLLECTIONS, CollectionKeys
from smdebug.core.guard import guarded
from smdebug.core.hook import BaseHook
from smdebug.core.save_config import SaveConfig
from smdebug.exceptions import SMDebugError
from smdebug.xgboost.trees import columns_of

DEFAULT_SAVE_CONFIG_INTERVAL = 10
IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
#: Before 1.3 a callback was a function of the round's environment.
_Callback = getattr(getattr(xgboost, "callback", None), "TrainingCallback", object)


def _data(name, data):
    """A DMatrix: given, or of a file and its type, csv or libsvm."""
    if data is None or isinstance(data, xgboost.DMatrix):
        return data
    if not (isinstance(data, tuple) and len(data) == 2 and all(isinstance(one, str) for one in data)):
        raise SMDebugError(f"{name} must be a tuple (file path, content type) or an xgboost.DMatrix instance.")
    kind = data[1].lower().removeprefix("text/").removeprefix("x-")
    if kind not in ("csv", "libsvm"):
        raise SMDebugError(f"{name}: {data[1]} is not an accepted ContentType: csv, libsvm, text/csv, text/libsvm")
    return xgboost.DMatrix(f"{data[0]}?format={kind}" + ("&label_column=0" if kind == "csv" else ""))


class Hook(BaseHook, _Callback):
    """AWS's `smdebug.xgboost.Hook`. Predictions and labels are of `validation_data`, SHAP values of
    `train_data`.
    """

    COLLECTIONS = XGBOOST_COLLECTIONS
    DEFAULT_INCLUDE_COLLECTIONS = [CollectionKeys.METRICS]
    DEFAULT_VALUES = {"save_interval": DEFAULT_SAVE_CONFIG_INTERVAL}

    def __init__(self, *args, save_config=None, hyperparameters=None, train_data=None, validation_data=None, **kwargs):
        save_config = save_config or SaveConfig(save_interval=DEFAULT_SAVE_CONFIG_INTERVAL)
        self.hyperparameters = hyperparameters
        self.train_data = _data("train_data", train_data)
        self.validation_data = _data("validation_data", validation_data)
        self._warned, self._shap = set(), None
        #: Of trainings before this one in the process: their rounds stand before its own.
        self._rounds_before, self._rounds = 0, 0
        super().__init__(*args, save_config=save_config, **kwargs)
        if self.reduction_config.to_json_dict()["reductions"]:
            self.logger.warning("'reduction_config' is not supported and will be ignored.")

    # What XGBoost calls.

    def before_training(self, model):
        """A training begins, whose rounds are counted behind those of others in this process."""
        self._rounds_before += self._rounds
        self._rounds = 0
        return model

    def after_iteration(self, model, epoch, evals_log) -> bool:
        """After each round. False: the training continues."""
        self._after_round(model, epoch, evals_log)
        return False

    @guarded
    def _after_round(self, model, epoch, evals_log) -> None:
        metrics = [
            (f"{data}-{name}", values[-1]) for data, by_name in evals_log.items() for name, values in by_name.items()
        ]
        self._round(model, epoch, metrics)

    @guarded
    def __call__(self, env) -> None:
        """After each round, before XGBoost 1.3."""
        self._round(env.model, env.iteration, list(env.evaluation_result_list))

    def after_training(self, model):
        """A training has ended: its last round's files are complete."""
        self._complete_round()
        return model

    @guarded
    def _complete_round(self) -> None:
        self._end_step()

    # What is saved.

    def _round(self, model, epoch, metrics) -> None:
        self._rounds = epoch + 1
        self._begin_step(self._rounds_before + epoch)
        # A value may be a mean with its deviation.
        metrics = [(name, value[0] if isinstance(value, tuple) else value) for name, value in metrics]
        for name, value in metrics:
            self._save(name, value)
        savers = {
            CollectionKeys.HYPERPARAMETERS: self._save_hyperparameters,
            CollectionKeys.PREDICTIONS: lambda: self._save_predictions(model),
            CollectionKeys.LABELS: self._save_labels,
            CollectionKeys.FEATURE_IMPORTANCE: lambda: self._save_importance(model),
            CollectionKeys.TREES: lambda: self._save_trees(model, epoch),
            CollectionKeys.FULL_SHAP: lambda: self._save_full_shap(model),
            CollectionKeys.AVERAGE_SHAP: lambda: self._save_average_shap(model),
        }
        due = {one.name for one in self._due}
        for name, save in savers.items():
            if name in due or CollectionKeys.ALL in due:
                save()
        self._shap = None
        self._end_step()

    def _lacks(self, what: str, argument: str) -> None:
        if argument not in self._warned:
            self._warned.add(argument)
            self.logger.warning(f"To log {what}, '{argument}' parameter must be provided.")

    def _save_hyperparameters(self) -> None:
        if not self.hyperparameters:
            self._lacks("hyperparameters", "hyperparameters")
        for name, value in (self.hyperparameters or {}).items():
            if value is None:
                continue
            self._save(f"hyperparameters/{name}", value if isinstance(value, (int, float, bool, str)) else str(value))

    def _save_predictions(self, model) -> None:
        if self.validation_data is None:
            self._lacks("predictions", "validation_data")
        else:
            self._save("predictions", model.predict(self.validation_data))

    def _save_labels(self) -> None:
        if self.validation_data is None:
            self._lacks("labels", "validation_data")
        else:
            self._save("labels", self.validation_data.get_label())

    def _save_importance(self, model) -> None:
        for kind in IMPORTANCES:
            try:
                scores = model.get_score(importance_type=kind)
            except ValueError as error:
                # Linear boosters have weights only.
                self._lacks_trees(error)
                continue
            scores = {feature: np.mean(score) for feature, score in scores.items()}
            total = sum(scores.values())
            for feature, score in scores.items():
                self._save(f"feature_importance/{kind}/{feature}", score / total if total else 0.0)

    def _lacks_trees(self, error) -> None:
        if "trees" not in self._warned:
            self._warned.add("trees")
            self.logger.warning(f"feature_importance is not saved in full: {error}")

    def _save_trees(self, model, epoch) -> None:
        dumps = model.get_dump(with_stats=True)
        # A round has a tree for each class.
        per_round = max(len(dumps) // (epoch + 1), 1)
        for name, values in columns_of(dumps[-per_round:], len(dumps) - per_round).items():
            self._save(f"trees/{name}", values)

    def _shap_of(self, model):
        if self.train_data is None:
            self._lacks("SHAP values", "train_data")
        elif self._shap is None:
            self._shap = model.predict(self.train_data, pred_contribs=True)
        return self._shap

    def _save_full_shap(self, model) -> None:
        values = self._shap_of(model)
        for at, feature in enumerate(self._features(model)) if values is not None else ():
            self._save(f"full_shap/{feature}", values[..., at])

    def _save_average_shap(self, model) -> None:
        values = self._shap_of(model)
        for at, feature in enumerate(self._features(model)) if values is not None else ():
            self._save(f"average_shap/{feature}", values[..., at].mean())

    @staticmethod
    def _features(model) -> list[str]:
        names = model.feature_names or [f"f{at}" for at in range(model.num_features())]
        return [*names, "bias"]

    def _place(self) -> tuple[int, int]:
        ranks = getattr(xgboost, "collective", None) or getattr(xgboost, "rabit", None)
        return (ranks.get_rank(), ranks.get_world_size()) if ranks else (0, 1)
