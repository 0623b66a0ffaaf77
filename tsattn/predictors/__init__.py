"""What can forecast."""
