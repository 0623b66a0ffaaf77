"""Public data sets: their cards, and the DataModules that read them. Importing this package imports nothing else."""
