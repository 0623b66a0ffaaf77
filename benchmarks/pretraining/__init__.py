"""The training of the included pretrained model: its data, network and commands."""
