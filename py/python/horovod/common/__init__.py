"""What all frameworks' adapters share."""
