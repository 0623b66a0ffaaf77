"""The keys of a suite: what its reader takes, and what the reference says of each."""

from __future__ import annotations

__all__ = ["ATTENTION", "DATA_SET", "LIMITS", "MIX", "PARTS", "PREDICTOR", "SELECTION", "SUITE"]

LIMITS = {
    "horizons": "at these horizons of the suite alone",
    "seeds": "with at most so many seeds; a number, or one for each horizon",
    "data": "on these data sets of the suite alone",
    "predictors": "with these predictors of the suite alone",
    "attentions": "with these attentions of the suite alone",
}
"""What restricts a part of a suite: the part's own kind has no such key."""


def _limits_of_others(own: str) -> dict[str, str]:
    return {key: what for key, what in LIMITS.items() if key != own}


SUITE = {
    "data": "the data sets, a list: the name of a public one, or a mapping (see below)",
    "horizons": "steps to forecast, a list, the most worth first",
    "seeds": "how many seeds, or a number for each horizon: `{96: 5, 720: 3}`; 1 by default",
    "predictors": "a mapping of names to predictors: a kind, an import path, or a mapping (see below)",
    "attentions": "a mapping of names to attentions: a kind, a description, or a mapping (see below)",
    "values": "of all experiments, by the dotted paths of a configuration: `{data.context_length: 512}`",
    "first_seed": "the number of the first seed; 1 by default",
    "fresh_seeds": "seeds that have no part in what reports find, and confirm it: `[4, 5]`; none by default",
    "caveats": "sentences that every report of the records prints, a list",
    "order": "of the runs, what changes least first: a list of seed, horizon, dataset, predictor and attention",
    "selection": "how values are chosen on validation before the runs (see below); `none` by default",
}
DATA_SET = {
    "name": "of the data set, a public one if there is no `class_path`",
    "class_path": "the class that reads another: `CSVDataModule`",
    "init_args": "its arguments: `{path: shops.csv, target: [sales]}`",
    "values": "of all experiments on it, by dotted paths",
    **_limits_of_others("data"),
}
PREDICTOR = {
    "backbone": "its description, which each attention is put into",
    "mix": "instead: an ensemble of other predictors of the suite, which are not trained a second time",
    "goes_on_with": "another predictor of the suite, the same but for fewer steps, whose training its own goes on with",
    "values": "of its experiments, by dotted paths",
    "by_data": "values in place of these on one data set: `{weather: {trainer.max_steps: 800}}`",
    "selection": "`none`: its values stay as they are; `all` by default",
    **_limits_of_others("predictors"),
    "attentions": "those that it is run with; `none`: its description is left as it is; all by default",
}
MIX = {
    "of": "the names of the predictors, a list",
    "weights": "a number for each; equal ones by default",
    "seeds": "so many trainings of each, whose mean it is; 1 by default",
}
ATTENTION = {
    "attention": "a kind or a description",
    "by_data": "another description on one data set: `{weather: {kind: mlr, ranks: [4, 4]}}`",
    "chosen_as": "the attention whose chosen values it takes, instead of a search of its own",
    **_limits_of_others("attentions"),
}
SELECTION = {
    "search": "the search space, a name under `search/`, the same for all",
    "trials": "of each study; 12 by default",
    "folds": "rolling origins before the test part that trials are measured on; 3 by default, 0: the validation part",
    "horizon": "that is searched at; the first of the suite by default",
    "attentions": "`each`, a study for each attention, or `first`, one whose values all take; `each` by default",
    "values": "of the trials alone, by dotted paths",
}

PARTS = {
    "Keys": SUITE,
    "A data set": DATA_SET,
    "A predictor": PREDICTOR,
    "A mix": MIX,
    "An attention": ATTENTION,
    "A selection": SELECTION,
}
"""All of them, under titles."""
