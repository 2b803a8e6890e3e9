"""Directories of checkpoints."""
