"""Pretrained models of this package's own layers, which need no extra.

`bolt_file` is the file of such a model, weights with what they were built for, and finds one by its name or path;
`continued_quantiles` forecasts beyond its horizon and between its levels. What forecasts with them is the predictor
`chronos` of `tsattn.chronos`.

A model that comes with the package is a file ``weights/NAME.safetensors`` of this folder and a line in `PRETRAINED` of
`tsattn.predictors`, which makes its name one for `Forecaster`, YAML and command line.
"""
