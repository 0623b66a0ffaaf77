"""The page of a benchmark, as Markdown, as HTML, and as the part of a README: an answer, a figure, a table, details."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, cast

import pandas as pd

from tsattn.errors import UserError, number_of
from tsattn.leaderboard.analysis import FEWEST_SETS, METRICS, Analysis, Answer
from tsattn.leaderboard.digest import conflicts
from tsattn.leaderboard.figure import COLOURS, Mark, forest, inline_svg, png
from tsattn.leaderboard.published import read_published, shipped_numbers
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.statistics import Claim, Difference, Estimate, over_data_sets
from tsattn.saved_folders import write_text, write_whole

MARKDOWN, HTML, PICTURE = "report.md", "report.html", "report.png"
BEGIN, END = "<!-- leaderboard: tsattn report RECORDS --readme README.md -->", "<!-- leaderboard ends -->"
"""Comments that enclose the report's part of a README."""

_DASH = "\N{EN DASH}"
_MOST_ATTENTIONS = 4  # columns of the table; more attentions become rows
_MOST_SETS = 12  # rows of the table; with more data sets it shows means
_ASKED = (
    "A question with a p-value was written down before the runs. "
    "These p-values are corrected for each other by Holm's method."
)
_READ_INTERVALS = (
    "Intervals are of 95 % and include what another test period and other seeds would change. "
    "They are not corrected for the number of comparisons."
)


@dataclass(frozen=True)
class PageTable:
    """A table of words in Markdown, at most seven columns wide."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The table in Markdown, without a line break at its end."""
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join(
            f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in line)} |" for line in lines
        )


@dataclass(frozen=True)
class Detail:
    """A folded part of a page: its title, sentences, and a table."""

    title: str
    sentences: Sequence[str] = ()
    table: PageTable | None = None


@dataclass(frozen=True)
class Page:
    """The content of a page; sentences and cells are Markdown with only code and bold words.

    `rows` are the rows of the figure, empty without a figure. `notes` explain the table; `details` are folded.
    """

    title: str
    answer: Sequence[str]
    figure: str
    rows: Mapping[str, Sequence[Mark]]
    caption: str
    table: PageTable
    notes: Sequence[str]
    questions: PageTable | None
    details: Sequence[Detail] = field(default_factory=tuple)
    axis: str = "difference in MSE, %"


def page_of(analysis: Analysis) -> Page:
    """Build the page that reports an analysis."""
    names = ", ".join(analysis.suites) or ", ".join(analysis.datasets)
    page = Page(
        title=f"Benchmark: {names}",
        answer=_answer(analysis),
        figure=f"Error compared with the {_linear_name(analysis)}",
        rows=_figure_rows(analysis),
        caption=(
            f"Test MSE compared with the {_linear_name(analysis)}, mean over horizons and seeds. "
            "Lower is better. Bars are 95 % intervals. Arrows are beyond the edge. "
            "Stars are the lowest that others published for all test windows."
        ),
        table=_table(analysis),
        notes=_notes(analysis),
        questions=_questions(analysis),
        details=[*_details(analysis)],
    )
    if page.questions is None or len(analysis.datasets) <= _MOST_SETS:
        return page
    answers = [one for one in analysis.answers if one.estimate is not None]
    metrics = " or ".join(dict.fromkeys(one.question.metric.upper() for one in answers))
    return replace(
        page,
        figure="Error of one model compared with another",
        axis=f"difference in {metrics}, %",
        rows=_mean_rows(analysis, answers),
        caption=(
            f"Test {metrics}, mean over data sets, horizons and seeds. Left of 0 the first is better. "
            "Bars are 95 % intervals."
        ),
        table=page.questions,
        notes=[_ASKED],
        questions=None,
        details=[Detail("Each data set", page.notes, page.table), *page.details],
    )


def _mean_rows(analysis: Analysis, answers: Sequence[Answer]) -> dict[str, list[Mark]]:
    """One row per question with its mean over data sets; labels name the models and what differs between questions."""
    differ = {
        name: len({getattr(one.question, name) for one in answers}) > 1 for name in ("metric", "horizons", "data")
    }
    rows = {}
    for place, answer in enumerate(answers, start=1):
        question, estimate = answer.question, answer.estimate
        names = [*question.models, question.against]
        predictors, attentions = zip(*(analysis.parts[name] for name in names), strict=True)
        if len(set(predictors)) == 1 and all(attentions):
            lines = [f"{predictors[0]}: {', '.join(attentions[:-1])}", f"/ {attentions[-1]}"]
        else:
            lines = [*question.models, f"/ {question.against}"]
        where = [question.metric.upper()] if differ["metric"] else []
        if differ["horizons"]:
            where += [f"at {_listed(map(str, question.horizons)) if question.horizons else 'all horizons'}"]
        if differ["data"]:
            first, *more = answer.data
            where += [f"on {first}{f' and {len(more)} more' if more else ''}"]
        label = "\n".join([*lines, *where])
        label += f"\n(question {place})" if label in rows else ""
        if estimate is not None:
            rows[label] = [Mark("mean", estimate.percent, *estimate.percent_interval())]
    return rows


def _number(value: float) -> str:
    return _DASH if math.isnan(value) else f"{value:.3f}"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "\N{MINUS SIGN}")


def _percent(percent: float) -> str:
    return _DASH if math.isnan(percent) else f"{_signed(percent)} %"


def interval_text(estimate: Estimate) -> str:
    """A difference with its 95 % interval, ``-1.2 % (-2.0 to -0.4)``; only the difference without an interval."""
    low, high = estimate.percent_interval()
    ends = "" if math.isnan(low) else f" ({_signed(low)} to {_signed(high)})"
    return f"{_percent(estimate.percent)}{ends}"


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _code(name: str) -> str:
    return f"`{name}`"


def _size(value: float) -> str:
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return _DASH if math.isnan(value) else f"{value:.3g}"


def _answer(analysis: Analysis) -> list[str]:
    """Say whether an attention helps, by how much at most, and how the reference compares with a linear model."""
    pairs = analysis.means
    if not pairs:
        return [_lowest(analysis, dataset) for dataset in analysis.datasets][:3]
    reference = analysis.short(pairs[0].against)
    noun = "attention" if analysis.parts[pairs[0].against][1] else "model"
    if analysis.claims:
        counts = [claim.better + claim.worse - len(claim.left_out) for claim, _ in analysis.claims.values()]
        where = f"on average over {max(counts)} of {len(analysis.datasets)} data sets"
        estimates: dict[str, Estimate] = {_code(name): claim for name, (claim, _) in analysis.claims.items()}
        verdicts = [(name, "", verdict) for name, (_, verdict) in analysis.claims.items()]
        subject = "mean differences"
    else:
        where = f"on {_listed(dict.fromkeys(pair.dataset for pair in pairs))}"
        many = len({pair.dataset for pair in pairs}) > 1
        names = [f"`{analysis.short(pair.model)}`{f' on {pair.dataset}' if many else ''}" for pair in pairs]
        estimates = {name: pair.mse for name, pair in zip(names, pairs, strict=True)}
        verdicts = [(analysis.short(pair.model), pair.dataset, pair.verdict) for pair in pairs]
        subject = "differences"
    better, worse = (_are(verdicts, word) for word in ("better", "worse"))
    said = f"{better} than `{reference}`" if better else f"no {noun} is measurably better than `{reference}`"
    said += f", and {worse}" if worse else ""
    sentences = [f"{where[0].upper()}{where[1:]}, {said}."]
    equal = dict.fromkeys(verdict for *_, verdict in verdicts if verdict.startswith("equal"))
    sentences += [f"{_are(verdicts, verdict)}." for verdict in equal]
    ends = {name: one.percent_interval() for name, one in estimates.items() if not math.isnan(one.standard_error)}
    if 0 < len(ends) <= 4:
        sentences.append(f"Intervals (95 %) of the {subject}:")
        sentences += [f"{name} {_percent(low)} to {_percent(high)}." for name, (low, high) in ends.items()]
    return [*sentences, *_against_linear(analysis, reference)]


def _are(verdicts: Sequence[tuple[str, str, str]], word: str) -> str:
    """``a and b on ETTh1 are better``, from models, data sets and verdicts; empty if no model has this verdict."""
    found: dict[str, list[str]] = {}
    for name, dataset, verdict in verdicts:
        if verdict == word:
            found.setdefault(name, []).append(dataset)
    everywhere = {name for name, sets in found.items() if len(sets) == sum(one == name for one, *_ in verdicts)}
    names = [_code(name) + ("" if name in everywhere else f" on {_listed(sets)}") for name, sets in found.items()]
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'} {word}" if names else ""


def _lowest(analysis: Analysis, dataset: str) -> str:
    best = analysis.lowest(dataset, "mse")
    if best is None:
        return f"On {dataset}, no model has all horizons."
    return f"On {dataset}, `{best}` has the lowest test MSE: {_number(analysis.score(dataset, best))}."


def _against_linear(analysis: Analysis, reference: str) -> list[str]:
    """Compare the reference with the linear model of each data set, and on average over at least three sources."""
    found: dict[str, list[str]] = {}
    differences = {}
    for dataset in analysis.datasets:
        linear, models = analysis.linear(dataset), analysis.shown[dataset]
        if linear is not None and models and models[0] != linear and analysis.short(models[0]) == reference:
            one = differences[dataset] = analysis.difference(dataset, models[:1], linear)
            verdict = one.verdict(analysis.margin([dataset]))
            size = f" ({_percent(one.percent)})" if verdict in ("better", "worse") else ""
            found.setdefault(verdict, []).append(f"{dataset}{size}")
    if not found:
        return []
    by_verdict = [
        f"{verdict} on {_listed(names) if len(names) < 3 else f'{len(names)} data sets'}"
        for verdict, names in sorted(found.items(), key=lambda item: _rank(item[0]))
    ]
    said = [f"Compared with the {_linear_name(analysis)}, `{reference}` is {_listed(by_verdict)}."]
    known = {dataset: one for dataset, one in differences.items() if not math.isnan(one.estimate)}
    mean = over_data_sets(known, analysis.sources)
    if mean.sources >= FEWEST_SETS:
        low, high = map(_percent, mean.percent_interval())
        said.append(f"Its mean difference lies between {low} and {high}: {mean.verdict(analysis.margin(known))}.")
    return said


def _linear_name(analysis: Analysis) -> str:
    chosen = {analysis.kinds[model] for dataset in analysis.datasets if (model := analysis.linear(dataset))}
    return "ridge" if chosen == {("ridge",)} else "linear model"


def _figure_rows(analysis: Analysis) -> dict[str, list[Mark]]:
    rows = {}
    for dataset in analysis.datasets:
        linear = analysis.linear(dataset)
        if linear is None:
            continue
        base = analysis.score(dataset, linear)
        marks = []
        for model in (one for one in analysis.shown[dataset] if one != linear):
            one = analysis.difference(dataset, [model], linear)
            marks.append(Mark(analysis.short(model), one.percent, *one.percent_interval()))
        best = analysis.lowest_published(dataset)
        if best is not None:
            marks.append(Mark("lowest published", 100 * (best[1] / base - 1), form="star"))
        for model in analysis.naive(dataset):
            value = 100 * (analysis.score(dataset, model) / base - 1)
            marks.append(Mark(model.replace("_", " "), value, form="cross"))
        rows[dataset] = marks
    return rows if any(mark.form == "dot" for marks in rows.values() for mark in marks) else {}


def _table(analysis: Analysis) -> PageTable:
    """One row per data set with a column per attention; with many attentions, one row per attention."""
    names = [*dict.fromkeys(analysis.short(model) for name in analysis.datasets for model in analysis.shown[name])]
    if len(names) > _MOST_ATTENTIONS:
        return _long_table(analysis)
    naive = ["seasonal naive"] if len(names) < _MOST_ATTENTIONS else []
    rows = []
    for dataset in analysis.datasets:
        models = {analysis.short(model): model for model in analysis.shown[dataset]}
        shown = [*map(models.get, names), analysis.linear(dataset)]
        shown += [next((one for one in analysis.naive(dataset) if "seasonal" in one), None)] * len(naive)
        scores = [math.nan if model is None else analysis.score(dataset, model) for model in shown]
        naive_scores = [analysis.score(dataset, one) for one in analysis.naive(dataset)]
        least = min((one for one in (*scores, *naive_scores) if not math.isnan(one)), default=None)  # None without runs
        cells = [f"**{_number(score)}**" if score == least else _number(score) for score in scores]
        rows.append([dataset, *cells, *([_verdicts(analysis, dataset)] if len(names) > 1 else [])])
    verdict = ["verdict, MSE"] if len(names) > 1 else []
    return PageTable(["data set", *map(_code, names), _linear_name(analysis), *naive, *verdict], rows)


def _long_table(analysis: Analysis) -> PageTable:
    by_model = {(pair.dataset, pair.model): pair for pair in analysis.pairs if pair.horizon is None}
    rows = []
    for dataset in analysis.datasets:
        linear = analysis.linear(dataset)
        for model in dict.fromkeys([*analysis.shown[dataset], *([linear] if linear else [])]):
            pair = by_model.get((dataset, model))
            cells = [_number(analysis.score(dataset, model, metric)) for metric in METRICS]
            cells += [interval_text(pair.mse), pair.verdict] if pair else [_DASH, _DASH]
            rows.append([dataset, _code(model), *cells])
    return PageTable(["data set", "model", "MSE", "MAE", "difference in MSE (95 % interval)", "verdict"], rows)


def _verdicts(analysis: Analysis, dataset: str) -> str:
    """The verdicts of a row, grouped; *better* and *worse* with the size of the difference."""
    pairs = [pair for pair in analysis.pairs if pair.dataset == dataset and pair.horizon is None]
    by_verdict: dict[str, list[str]] = {}
    for pair in pairs:
        verdict = pair.verdict if not pair.mse.reason else "undecided: no interval"
        size = f" {interval_text(pair.mse)}" if verdict in ("better", "worse") else ""
        by_verdict.setdefault(verdict, []).append(f"`{analysis.short(pair.model)}`{size}")
    if len(by_verdict) == 1 and not {"better", "worse"} & set(by_verdict):
        return next(iter(by_verdict))
    return (
        "; ".join(f"{', '.join(by_verdict[verdict])} {verdict}" for verdict in sorted(by_verdict, key=_rank)) or _DASH
    )


def _rank(verdict: str) -> int:
    return ("bet", "wor", "equ", "und").index(verdict[:3])


def _notes(analysis: Analysis) -> list[str]:
    several = any(len(analysis.horizons[dataset]) > 1 for dataset in analysis.datasets)
    notes = [f"MSE on standardised data, mean over {'horizons and ' if several else ''}seeds."]
    references = {analysis.short(pair.against) for pair in analysis.pairs}
    if references:
        notes.append(f"Verdicts compare with {_listed(map(_code, sorted(references)))}.")
        naive = [one for one in analysis.datasets if analysis.lowest(one, "mse") in analysis.naive(one)]
        notes += [_lowest(analysis, one) for one in naive]
    by_linear: dict[str, list[str]] = {}
    for dataset in analysis.datasets:
        if (linear := analysis.linear(dataset)) is not None:
            by_linear.setdefault(analysis.label(dataset, linear), []).append(dataset)
    if by_linear:
        listed = "; ".join(f"{_code(name)} on {_listed(names)}" for name, names in by_linear.items())
        notes.append(f"The {_linear_name(analysis)}: {listed}.")
    return notes


def _questions(analysis: Analysis) -> PageTable | None:
    heads = ["question", "compared", "against", "data", "difference (95 % interval)", "p, corrected", "verdict"]
    rows = [_question(one, one.estimate) for one in analysis.answers if one.estimate is not None]
    return PageTable(heads, rows) if rows else None


def _question(answer: Answer, estimate: Difference | Claim) -> list[str]:
    one, data = answer.question, answer.data[0]
    if isinstance(estimate, Claim):
        known = len(answer.data) - len(estimate.left_out)
        sources = f" of {estimate.sources} sources" if estimate.sources < known else ""
        signs = f"lower on {estimate.better}, higher on {estimate.worse} (sign test: p {estimate.sign_p:.2g})"
        out = estimate.left_out
        lacking = f", no interval on {_listed(out) if len(out) < 4 else len(out)}" if out else ""
        data = f"{number_of(len(answer.data), 'data set')}{sources}: {signs}{lacking}"
    p_value = "exploration" if answer.corrected is None else f"{answer.corrected:.2g}"
    cells = [one.ask, ", ".join(map(_code, one.models)), _code(one.against), data]
    return [*cells, f"{one.metric.upper()} {interval_text(estimate)}", p_value, answer.verdict]


def _details(analysis: Analysis) -> Iterable[Detail]:
    if analysis.pairs:
        yield _pairs(analysis)
    yield _all_models(analysis)
    yield _chosen(analysis)
    if published := [*_published(analysis)]:
        sentences = ["Means over the same horizons. We ran none of these: contexts, tuning and test windows differ."]
        heads = ["data set", "model", "MSE", "MAE", "context", "all windows", "source"]
        yield Detail("Published numbers", sentences, PageTable(heads, published))
    if len(analysis.failed):
        cells = analysis.failed.drop(columns="suite").astype(object)
        rows = cells.where(cells.notna(), "").astype(str).to_numpy().tolist()
        heads = ["data set", "horizon", "predictor", "attention", "seed", "error"]
        yield Detail("Failed runs", (), PageTable(heads, rows))
    caveats = list(dict.fromkeys(one for suite in analysis.suites.values() for one in suite.caveats))
    if caveats:
        yield Detail("Caveats", caveats)
    yield Detail("How it was made", [*made(analysis)])


def _pairs(analysis: Analysis) -> Detail:
    rows = []
    for pair in analysis.pairs:
        first, *more = analysis.horizons[pair.dataset]
        horizon = str(pair.horizon or ("all" if more else first))
        cells = [pair.dataset, _code(pair.model), horizon]
        for one in (pair.mse, pair.mae):
            cells += [interval_text(one), one.verdict(pair.margin)]
        rows.append(cells)
    reasons = dict.fromkeys(pair.mse.reason for pair in analysis.pairs if pair.mse.reason)
    against = _listed(dict.fromkeys(_code(pair.against) for pair in analysis.pairs))
    heads = ["data set", "model", "horizon", "MSE (95 % interval)", "verdict", "MAE (95 % interval)", "verdict"]
    sentences = [f"Differences from {against}.", _READ_INTERVALS, *(f"No interval: {one}." for one in reasons)]
    return Detail("Differences by horizon", sentences, PageTable(heads, rows))


def _all_models(analysis: Analysis) -> Detail:
    def cells(means: pd.Series[Any]) -> list[str]:
        return [*map(_number, means[["mse", "mae", "mase"]]), _size(means["parameters"]), f"{means['seconds']:.0f}"]

    rows = []
    for place, means in analysis.scores.iterrows():
        dataset, model = cast("tuple[Any, Any]", place)
        rows.append([dataset, _code(analysis.label(dataset, model)), *cells(means)])
    for (dataset, model), part in analysis.by_horizon.groupby(["dataset", "model"], sort=False):
        if (dataset, model) not in analysis.scores.index:
            name = f"{_code(str(model))} at {_listed(map(str, sorted(part['horizon'])))}"
            rows.append([dataset, name, *cells(part.mean(numeric_only=True))])
    heads = ["data set", "model", "MSE", "MAE", "MASE", "parameters", "seconds"]
    return Detail("All models", ["Means over horizons and seeds. Seconds are of one training."], PageTable(heads, rows))


def _chosen(analysis: Analysis) -> Detail:
    rows = []
    for dataset in analysis.datasets:
        cells = [dataset]
        for attention in (False, True):
            model = analysis.chosen(dataset, attention=attention)
            cells += [_DASH, _DASH] if model is None else [_code(model), _number(analysis.score(dataset, model))]
        best = analysis.lowest_published(dataset)
        cells += [_DASH, _DASH] if best is None else [_number(best[1]), best[0].model]
        rows.append(cells)
    heads = ["data set", "lowest validation MSE", "test MSE", "with an attention", "test MSE"]
    heads += ["lowest published MSE", "by"]
    sentences = ["Validation chooses among all models, and among those with a trained attention."]
    return Detail("Chosen on validation", sentences, PageTable(heads, rows))


def _published(analysis: Analysis) -> Iterable[list[str]]:
    for dataset in analysis.datasets:
        for one, mse, mae in analysis.published(dataset):
            windows = "yes" if one.complete_test else "no"
            source = f"{one.source}. {one.note}" if one.note else one.source
            yield [dataset, one.model, _number(mse), _number(mae), one.context_length, windows, source]


def made(analysis: Analysis) -> Iterable[str]:
    """Sentences on runs, commits, machines, versions and seeds."""
    runs = analysis.runs
    for name, part in runs.groupby("suite", sort=False):
        commits = [one[:10] + "+changes" * ("+" in one) for one in dict.fromkeys(filter(None, part["git"].dropna()))]
        commands = "; ".join(map(_code, dict.fromkeys(part["command"].dropna())))
        hours = part["seconds"].sum() / 3600
        finished = part["finished"].dropna()
        when = f", finished {finished.max():%Y-%m-%d}" if len(finished) else ""
        yield f"Suite `{name}`: {number_of(len(part), 'run')}, {hours:.1f} hours of training{when}."
        yield f"Commands: {commands}." + (f" Commits: {', '.join(commits)}." if commits else "")
    yield from (f"{sentence[0].upper()}{sentence[1:]}." for sentence in conflicts(runs))
    machines = ", ".join(dict.fromkeys(runs["cpu"].dropna()))
    threads = _listed(str(one) for one in sorted(set(runs["threads"].dropna())))
    yield f"CPUs: {machines}. Threads: {threads}."
    versions = pd.Series([json.loads(one) for one in set(runs["versions"].dropna())])
    if len(versions):
        names = ("python", "tsattn", "torch", "lightning", "numpy")
        found = {name: sorted({str(one[name]) for one in versions if name in one}) for name in names}
        yield f"Versions: {', '.join(f'{name} {_listed(values)}' for name, values in found.items() if values)}."
    trained = analysis.by_horizon["model"].isin(set(runs.loc[runs["seed"].notna(), "model"]))
    seeds = analysis.by_horizon[trained].groupby("dataset", sort=False)["seeds"].agg(["min", "max"])
    counts = [f"{name} {low}{f' to {high}' if high > low else ''}" for name, low, high in seeds.itertuples(name=None)]
    yield f"Seeds: {', '.join(counts)}."
    horizons = {name: _listed(map(str, steps)) for name, steps in analysis.horizons.items()}
    groups = {one: _listed(name for name in horizons if horizons[name] == one) for one in horizons.values()}
    yield f"Horizons: {'; '.join(f'{one} on {names}' for one, names in groups.items())}."


def write_report(analysis: Analysis, folder: str | Path) -> Page:
    """Write `MARKDOWN`, `HTML` and `PICTURE` into a folder, each whole or not at all."""
    page, folder = page_of(analysis), Path(folder)
    figure = forest(page.rows, title=page.figure, axis=page.axis) if page.rows else None
    svg = "" if figure is None else inline_svg(figure, f"{page.figure}: {page.caption}")
    if figure is not None:
        write_whole(folder / PICTURE, lambda file: file.write(png(figure)))
    write_text(folder / MARKDOWN, _rendered("report.md.jinja", page=page, asked=_ASKED, picture=PICTURE))
    colours = [(place, light, dark) for place, (light, dark) in enumerate(COLOURS.items())]
    write_text(folder / HTML, _rendered("report.html.jinja", page=page, asked=_ASKED, svg=svg, colours=colours))
    return page


def write_pages(
    records: Sequence[str | Path], folder: Path, readme: Iterable[str | Path], say: Callable[[str], None]
) -> None:
    """Write the report of records, and update its part of each `readme`; say what is written."""
    published = shipped_numbers()
    analysis = Analysis(Records.read(*records), read_published(published) if published else ())
    page = write_report(analysis, folder)
    failed = f", {len(analysis.failed)} failed" if len(analysis.failed) else ""
    say(f"{number_of(len(analysis.runs), 'run')}{failed}: {folder / HTML}, {folder / MARKDOWN}")
    for file in map(Path, readme):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} cannot be read") from error
        write_text(file, with_part(text, readme_part(page, os.path.relpath(folder, file.parent))))
        say(f"{file}: updated with these records")


def readme_part(page: Page, folder: str) -> str:
    """Return the part of a README: a page's answer, figure and table, with links into the report's folder."""
    where = folder.replace(os.sep, "/")
    part = _rendered("part.md.jinja", page=page, picture=f"{where}/{PICTURE}").strip()
    return f"{part} [Questions, intervals and details]({where}/{MARKDOWN})."


def with_part(text: str, part: str) -> str:
    """Replace the part of a text between `BEGIN` and `END`; a `UserError` unless it has both, once and in order."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(f"the file needs the lines {BEGIN} and {END}, once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def _rendered(name: str, **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline"] = _inline
    return environment.get_template(name).render(**values)


def _inline(text: str) -> Any:
    """Convert Markdown with code and bold words to HTML."""
    from markupsafe import Markup

    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", html))
