"""A model that is fitted to each window."""

__all__ = ["Mean"]


class Mean:
    """The mean of the last seasons, as many as are asked for."""

    def __init__(self, season_length: int = 1, seasons: int = 1000, alias: str = "Mean"):
        self.rows = season_length * seasons

    def __repr__(self):
        return "Mean"

    def point(self, y):
        if (y == 1e3).any():
            raise ValueError("a thousand\nis too much")
        if not self.rows:
            raise ValueError("no season is no mean")
        return y[-self.rows :].mean()
