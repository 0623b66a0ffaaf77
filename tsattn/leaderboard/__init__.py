"""A grid of experiments around `tsattn.experiments.run`, and the records of what came of each."""
