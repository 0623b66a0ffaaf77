"""Chronos-Bolt from this package's own layers, which need no extra.

- `bolt_network` is the network, a backbone with any attention in its encoder; `t5_layers` are its parts;
- `bolt_weights` exchanges weights and configurations with chronos-forecasting;
- `bolt_file` is the file of a pretrained network and finds one by its name or path;
- `continued_quantiles` forecasts beyond the network's horizon and between its levels.

A model that the package ships is a file ``weights/NAME.safetensors`` of this folder and a line in `PRETRAINED` of
`tsattn.predictors`, which makes its name one for `Forecaster`, YAML and command line.
"""
