"""How the weights of a Chronos model become those of another attention, and what that loses."""
