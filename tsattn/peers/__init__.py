"""Predictors of external libraries, which run in an environment of their own: the core never imports them."""
