"""Chronos-Bolt from this package's own layers, which need no extra: `bolt_network` and `bolt_file`.

A shipped model is a file ``weights/NAME.safetensors`` of this folder and a line in `PRETRAINED` of `tsattn.predictors`.
"""
