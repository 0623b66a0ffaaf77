"""What was measured beside the peers, as records and as text."""

from __future__ import annotations

from typing import Any

from peer_speed.contest import OURS, THEIRS, Course

__all__ = ["best_of", "row_of", "tables"]


def best_of(courses: dict[str, Course]) -> dict[str, Any]:
    """Where theirs has its least validation MSE, and where ours first is as low."""
    curves = {name: course.validations for name, course in courses.items()}
    theirs = min(curves[THEIRS], key=lambda one: one["mse"])
    reached = [one for one in curves[OURS] if one["mse"] <= theirs["mse"]]
    ours = reached[0] if reached else None
    return {
        "theirs": theirs,
        "ours": ours,
        "ours_best": min(curves[OURS], key=lambda one: one["mse"]),
        "times_faster": None if ours is None else round(theirs["training"] / ours["training"], 2),
        "times_faster_with_validation": None if ours is None else round(_whole(theirs) / _whole(ours), 2),
        "curves": curves,
    }


def tables(record: dict[str, Any]) -> str:
    """All of it, in Markdown."""
    machine = record["machine"]
    lines = [f"# Training beside neuralforecast, {machine['cpu']}", ""]
    lines += ["One thread, float32, ETTh1, made by `python benchmarks/peers.py`."]
    if record["steps"]:
        head = ("recipe", "ours, ms", "theirs, ms", "times faster", "at least", "hope")
        head += ("ours, MiB", "theirs, MiB", "parameters", "tokens")
        lines += ["", row_of(head), row_of(["---"] * len(head))]
        for name, one in record["steps"].items():
            pairs = [f"{one[OURS][fact]} / {one[THEIRS][fact]}" for fact in ("parameters", "tokens")]
            times = (one[OURS]["ms"], one[THEIRS]["ms"], one["times_faster"], one["at_least"], one["hope"])
            lines.append(row_of([name, *times, one[OURS]["memory_mib"], one[THEIRS]["memory_mib"], *pairs]))
    if record["best"]:
        head = ("seed", "their best MSE", "at step", "CPU s", "ours as low at step", "CPU s", "times faster")
        head += ("with validation", "our best MSE")
        first = record["best"][0]
        rates = f"Learning rates: ours {first['our_learning_rate']:g} at its peak, theirs {first['learning_rate']:g}."
        lines += [
            "",
            "Validation MSE of PatchTST, without a ridge, over all windows; the aim is 2 times faster, 5 at best. "
            f"{rates}",
            "",
        ]
        lines += [row_of(head), row_of(["---"] * len(head))]
        for one in record["best"]:
            theirs, ours = one["theirs"], one["ours"]
            reached = ("never", "", "", "")
            if ours is not None:
                faster = one["times_faster"], one["times_faster_with_validation"]
                reached = (ours["at"], f"{ours['training']:.1f}", *faster)
            is_last = theirs["at"] == max(validation["at"] for validation in one["curves"][THEIRS])
            mse = f"{theirs['mse']:.4f}", f"{theirs['at']}{', the last' * is_last}", f"{theirs['training']:.1f}"
            lines.append(row_of([one["seed"], *mse, *reached, f"{one['ours_best']['mse']:.4f}"]))
    versions = {name: value for one in record["steps"].values() for name, value in one[THEIRS]["versions"].items()}
    lines += ["", f"Python {machine['python']}, torch {machine['torch']}, {machine['platform']}"]
    if "neuralforecast" in versions:
        lines[-1] += f"; neuralforecast {versions['neuralforecast']} with torch {versions['torch']}"
    return "\n".join(lines) + "\n"


def _whole(validation: dict[str, float]) -> float:
    return validation["training"] + validation["validating"]


def row_of(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
