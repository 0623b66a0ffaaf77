"""Ridge regression in closed form on all windows of a data set: sums of their products, and the maps they determine."""
