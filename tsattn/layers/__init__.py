"""The parts that backbones are put together from."""

from tsattn.layers.embeddings import TimeTokens
from tsattn.layers.encoder import Encoder, EncoderBlock
from tsattn.layers.heads import DirectHead
from tsattn.layers.instance_norm import InstanceNorm

__all__ = ["DirectHead", "Encoder", "EncoderBlock", "InstanceNorm", "TimeTokens"]
