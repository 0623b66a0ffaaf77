"""Losses that are names alone."""


class MSE:
    outputsize_multiplier = 1


class MAE(MSE):
    pass


class HuberLoss(MSE):
    pass


class DistributionLoss:
    outputsize_multiplier = 2


class MQLoss:
    def __init__(self, quantiles):
        self.quantiles = quantiles
        self.outputsize_multiplier = len(quantiles)
