"""Names by which programs know the launcher's port."""
