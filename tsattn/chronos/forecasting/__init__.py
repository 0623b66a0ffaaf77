"""The predictor `chronos`: forecasts by a Chronos model, adapted or not, and its training."""
