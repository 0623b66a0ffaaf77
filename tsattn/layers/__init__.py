"""Building blocks of backbones."""

from tsattn.layers.covariates import CalendarFeatures, CategoryVectors, Covariates, CovariateTokens, HorizonEffect
from tsattn.layers.encoder import BlockStack, Encoder, EncoderBlock, TokenBatchNorm, token_norm
from tsattn.layers.exportable import repeated, running_maximum, solved
from tsattn.layers.outputs import OutputDistribution, QuantileFan, at_levels, distribution, output_fan
from tsattn.layers.tokens import DirectHead, Dropout, FlattenHead, InstanceNorm, Patches, TokenEmbedding

__all__ = [
    "BlockStack",
    "CalendarFeatures",
    "CategoryVectors",
    "CovariateTokens",
    "Covariates",
    "DirectHead",
    "Dropout",
    "Encoder",
    "EncoderBlock",
    "FlattenHead",
    "HorizonEffect",
    "InstanceNorm",
    "OutputDistribution",
    "Patches",
    "QuantileFan",
    "TokenBatchNorm",
    "TokenEmbedding",
    "at_levels",
    "distribution",
    "output_fan",
    "repeated",
    "running_maximum",
    "solved",
    "token_norm",
]
