"""What rules use besides trials."""
