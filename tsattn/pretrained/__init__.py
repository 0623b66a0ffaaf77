"""The pretrained model of this package, and the guesses that it weighs."""
