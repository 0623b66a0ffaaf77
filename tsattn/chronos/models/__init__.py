"""Pretrained Chronos models: finding them, opening them, and what differs between their families."""
