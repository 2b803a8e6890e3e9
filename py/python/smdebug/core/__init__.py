"""What the hooks of all frameworks and the reader have in common."""
