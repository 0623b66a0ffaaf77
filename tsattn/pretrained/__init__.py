"""The pretrained model that comes with this package, and the guesses that it weighs."""
