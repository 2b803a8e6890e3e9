"""Names by which programs know parts of the launcher."""
