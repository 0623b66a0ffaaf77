"""The sections of a report, in their order."""

from __future__ import annotations

from tsattn.leaderboard.report import (
    chosen_sections,
    difference_sections,
    published_numbers,
    record_sections,
    score_sections,
)
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.parts import Section

__all__ = ["sections_of", "title_of"]


def title_of(analysis: Analysis) -> str:
    """``Leaderboard: ett``."""
    suites = [name for name in dict.fromkeys(analysis.board.entries["suite"]) if name]
    return f"Leaderboard: {', '.join(suites)}" if suites else "Leaderboard"


def sections_of(analysis: Analysis) -> list[Section]:
    """All sections."""
    makers = (
        record_sections.summary_section,
        chosen_sections.chosen_section,
        score_sections.headline_section,
        difference_sections.difference_section,
        difference_sections.confirmation_section,
        difference_sections.rank_section,
        score_sections.ablation_section,
        score_sections.cost_section,
        score_sections.horizon_section,
        published_numbers.published_section,
        record_sections.forecast_section,
        record_sections.failed_section,
        record_sections.refused_section,
        record_sections.provenance_section,
        record_sections.method_section,
    )
    return [section for section in (maker(analysis) for maker in makers) if section is not None]
