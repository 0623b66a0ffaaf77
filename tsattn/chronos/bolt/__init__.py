"""Chronos-Bolt from this package's own layers, which need no extra.

- `bolt_network` is the network, a backbone with any attention in its encoder;
- `bolt_file` is the file of a pretrained network, and what chronos-forecasting calls its weights.

A shipped model is a file ``weights/NAME.safetensors`` of this folder and a line in `PRETRAINED` of `tsattn.predictors`.
"""
