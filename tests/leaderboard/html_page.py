"""Reading a page without a browser: its elements, and whether they are nested as they must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

# elements that never have an end
_VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Node:
    """An element."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Node] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list[Node]:
        found = [self] if self.tag == tag else []
        for child in self.children:
            found += child.all(tag)
        return found

    def everything(self) -> list[Node]:
        return [self, *(node for child in self.children for node in child.everything())]

    def words(self) -> str:
        return " ".join(" ".join([self.text, *(child.words() for child in self.children)]).split())


class Page(HTMLParser):
    """A page as a tree; what is not nested raises."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.root = Node("root", {})
        self._open = [self.root]
        self.feed(content)
        self.close()
        assert self._open == [self.root], f"not closed: {[node.tag for node in self._open[1:]]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}: {names}"
        node = Node(tag, dict(attrs))
        self._open[-1].children.append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag not in _VOID
        last = self._open.pop()
        assert last.tag == tag, f"</{tag}> ends <{last.tag}>"

    def handle_data(self, data: str) -> None:
        self._open[-1].text += data
