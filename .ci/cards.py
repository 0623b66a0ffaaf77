"""Write data/README.md anew from the cards in tsattn/data/public/cards.toml."""

from pathlib import Path

from tsattn.data.public.cards import with_cards

PAGE = Path(__file__).parents[1] / "data" / "README.md"

if __name__ == "__main__":
    PAGE.write_text(with_cards(PAGE.read_text("utf-8")), "utf-8")
