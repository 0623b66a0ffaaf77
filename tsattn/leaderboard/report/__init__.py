"""The report of a board: its contents as plain parts, and these as a page and as Markdown.

`analysis.py` computes all that is said; `score_sections.py`, `difference_sections.py` and `record_sections.py` turn it
into tables, figures and sentences (`parts.py`), which `page.py` writes as one HTML file and `markdown_text.py` as
Markdown.
"""
