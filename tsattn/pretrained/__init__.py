"""Pretrained models that come with the package: their files, and what forecasts with them.

A shipped model is a file ``weights/NAME.safetensors`` of this folder, as `bolt_file.py` writes it, and a line in
`PRETRAINED` of `tsattn.predictors`, which makes its name one for `Forecaster`, YAML and command line.
"""
