"""Queries about the machine."""
