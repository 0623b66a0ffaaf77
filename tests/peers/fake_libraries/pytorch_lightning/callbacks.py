"""What a callback inherits."""


class Callback:
    pass
