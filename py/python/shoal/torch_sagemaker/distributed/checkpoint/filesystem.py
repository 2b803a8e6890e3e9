"""Checkpoints in directories."""

from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

__all__ = ["DistributedFileSystemReader", "DistributedFileSystemWriter"]


class DistributedFileSystemReader(FileSystemReader):
    """Reads a directory that all ranks see."""


class DistributedFileSystemWriter(FileSystemWriter):
    """Writes a directory that all ranks see."""
