"""Tensor parallel layers."""
