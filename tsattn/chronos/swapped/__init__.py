"""What stands in the place of the attention of a Chronos model."""
