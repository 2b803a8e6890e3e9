"""Modules in place of Hugging Face's."""
