"""The parts that backbones are built from."""

from tsattn.layers.calendar_features import CalendarFeatures
from tsattn.layers.covariate_tokens import CovariateTokens
from tsattn.layers.covariates import Covariates, HorizonEffect
from tsattn.layers.dropout_layer import Dropout
from tsattn.layers.embeddings import TokenEmbedding
from tsattn.layers.encoder import Encoder, EncoderBlock
from tsattn.layers.heads import DirectHead, FlattenHead
from tsattn.layers.instance_norm import InstanceNorm
from tsattn.layers.moving_average import moving_average
from tsattn.layers.patching import Patches
from tsattn.layers.quantiles import QuantileFan
from tsattn.layers.series_linear import SeriesLinear

__all__ = [
    "CalendarFeatures",
    "CovariateTokens",
    "Covariates",
    "DirectHead",
    "Dropout",
    "Encoder",
    "EncoderBlock",
    "FlattenHead",
    "HorizonEffect",
    "InstanceNorm",
    "Patches",
    "QuantileFan",
    "SeriesLinear",
    "TokenEmbedding",
    "moving_average",
]
