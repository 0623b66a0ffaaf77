"""The one search space of a suite, cut to what a predictor has."""

from __future__ import annotations

from dataclasses import replace

from tsattn.experiments import Experiment
from tsattn.experiments.configs import find_config
from tsattn.experiments.dotted import BACKBONE, paths
from tsattn.tuning import Search, read_search

__all__ = ["SEARCHES", "find_search", "search_for"]

SEARCHES = "search/*.yaml"


def find_search(name: str) -> Search:
    """The search space of this name: a file, or one of those that come with tsattn, with ``search/`` or without.

    Raises:
        UserError: if there is none, or it is none.
    """
    known = f"search/{name}" if not name.startswith("search/") and "/" not in name else name
    try:
        path = find_config(known, "search space", SEARCHES)
    except ValueError:
        path = find_config(name, "search space", SEARCHES)
    return read_search(path)


def search_for(name: str, experiment: Experiment) -> Search | None:
    """The part of a search space that an experiment has; None if it has none of it.

    An argument that a predictor has not got, such as the dropout of a linear map, is left out for it, and so is what
    depends on that.

    Args:
        name: of the search space.
        experiment: that is searched around.

    Raises:
        UserError: see `find_search`.
    """
    search = find_search(name)
    known = set(paths(experiment.to_dict()))
    kept = {
        path: parameter
        for path, parameter in search.parameters.items()
        if path in known or not path.startswith(f"{BACKBONE}.")
    }
    while True:
        whole = {path: one for path, one in kept.items() if all(other in kept for other in one.when)}
        if len(whole) == len(kept):
            return replace(search, parameters=kept) if kept else None
        kept = whole
