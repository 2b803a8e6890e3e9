"""Names of files."""

CHECKPOINT_PREFIX = "xgboost-checkpoint"
MODEL_NAME = "xgboost-model"
