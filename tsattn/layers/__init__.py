"""The parts that backbones are built from."""

from tsattn.layers.covariates import CalendarFeatures, CategoryVectors, Covariates, CovariateTokens, HorizonEffect
from tsattn.layers.encoder import BlockStack, Encoder, EncoderBlock, TokenBatchNorm, token_norm
from tsattn.layers.outputs import OutputDistribution, QuantileFan, at_levels, distribution, output_fan, running_maximum
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
    "running_maximum",
    "token_norm",
]
