"""What builds the documentation site beside the pages of `docs/`: the generated reference, notebooks and reports.

`mkdocs.yml` names `hooks.py`, which calls the rest: each file here makes pages of one kind, as Markdown by path.
"""
