"""What is common to the frameworks."""
