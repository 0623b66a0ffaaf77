"""Stands in for Lightning, whose import takes longer than all that is asked: the names of its arguments."""


class Trainer:
    def __init__(self, accelerator="auto", devices="auto", gradient_clip_val=None, max_steps=-1, precision=None):
        raise AssertionError("it is only asked for its arguments")
