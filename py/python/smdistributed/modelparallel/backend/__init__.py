"""The frameworks' common part."""
