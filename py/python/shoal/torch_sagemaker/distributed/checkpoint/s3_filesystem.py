"""Checkpoints in S3: a job writes them to a directory, and the platform brings them there."""

import os

__all__ = ["is_s3_uri", "refuse_s3"]


def is_s3_uri(uri: str | os.PathLike | None) -> bool:
    """Whether it is of S3, as `s3://bucket/key`."""
    return uri is not None and os.fspath(uri).startswith("s3://")


def refuse_s3(checkpoint_id: str | os.PathLike | None, s3_region: str | None, s3client_config: object | None) -> None:
    """Raises `NotImplementedError` for what asks for S3."""
    if is_s3_uri(checkpoint_id) or s3_region is not None or s3client_config is not None:
        raise NotImplementedError(
            f"torch.sagemaker: checkpoint_id={checkpoint_id}, s3_region={s3_region}: checkpoints are not written to S3 by the script; give a directory beneath "
            "/opt/ml/checkpoints, which a job with checkpoint_s3_uri keeps in S3"
        )
