"""Series to pretrain on: drawn from Gaussian processes, and mixed from the training parts of public data sets."""
