"""A run, from its description to its result."""
