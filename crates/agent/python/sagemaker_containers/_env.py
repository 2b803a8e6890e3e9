"""The training job as its script sees it."""

from sagemaker_training.environment import Environment as TrainingEnv


def training_env() -> TrainingEnv:
    """Of this job."""
    return TrainingEnv()


__all__ = ["TrainingEnv", "training_env"]
