"""The parts that backbones are built from."""

from tsattn.layers.calendar_features import CalendarFeatures
from tsattn.layers.covariate_tokens import CovariateTokens
from tsattn.layers.covariates import Covariates, HorizonEffect
from tsattn.layers.distance_bias import DistanceBias
from tsattn.layers.distributions import OutputDistribution, distribution, output_fan
from tsattn.layers.dropout_layer import Dropout
from tsattn.layers.embeddings import TokenEmbedding
from tsattn.layers.encoder import Encoder, EncoderBlock
from tsattn.layers.heads import DirectHead, FlattenHead
from tsattn.layers.instance_norm import InstanceNorm
from tsattn.layers.moving_average import moving_average
from tsattn.layers.patching import Patches
from tsattn.layers.quantiles import QuantileFan
from tsattn.layers.residual_mlp import ResidualMLP, TokenNetwork
from tsattn.layers.series_linear import SeriesLinear
from tsattn.layers.t5_stack import T5Block, T5Stack
from tsattn.layers.window_scale import WindowScale

__all__ = [
    "CalendarFeatures",
    "CovariateTokens",
    "Covariates",
    "DirectHead",
    "DistanceBias",
    "Dropout",
    "Encoder",
    "EncoderBlock",
    "FlattenHead",
    "HorizonEffect",
    "InstanceNorm",
    "OutputDistribution",
    "Patches",
    "QuantileFan",
    "ResidualMLP",
    "SeriesLinear",
    "T5Block",
    "T5Stack",
    "TokenEmbedding",
    "TokenNetwork",
    "WindowScale",
    "distribution",
    "moving_average",
    "output_fan",
]
