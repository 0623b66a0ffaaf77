"""What becomes of a pretrained Chronos model whose attention is converted: arms, runs, counts, tables."""
