"""Write data/README.md anew from the cards in tsattn/data/public/cards.toml."""

from pathlib import Path

from tsattn.data.public.cards import CARDS, Card

PAGE = Path(__file__).parents[1] / "data" / "README.md"


def page(card: Card) -> str:
    """The card in Markdown, under a heading."""
    table = "".join(f"| {word} | {text} |\n" for word, text in card.facts())
    notes = "".join(f"- {oddity}\n" for oddity in card.oddities)
    return f"## {card.name}\n\n| | |\n| --- | --- |\n{table}" + (f"\n{notes}" if notes else "")


def with_cards(readme: str) -> str:
    """The text of `data/README.md` with the cards as they are now: between its introduction and the last heading."""
    start, end = readme.index("\n## ") + 1, readme.rindex("\n## ") + 1
    return readme[:start] + "\n".join(map(page, CARDS.values())) + "\n" + readme[end:]


if __name__ == "__main__":
    PAGE.write_text(with_cards(PAGE.read_text("utf-8")), "utf-8")
