"""Small questions about the machine."""
