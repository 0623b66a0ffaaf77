"""The public data sets: their cards, and the DataModules that read them. Importing this imports nothing else."""
