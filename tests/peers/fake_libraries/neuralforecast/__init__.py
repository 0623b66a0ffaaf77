"""Stands in for neuralforecast: as much of it as the worker calls, with models that can be computed by hand."""
