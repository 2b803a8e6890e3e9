"""Helpers for tests of training scripts."""
