"""Predictors of external libraries, which run in a separate environment: the core never imports them."""
