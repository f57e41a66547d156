"""A page as a browser parses it."""

from __future__ import annotations

from html.parser import HTMLParser

KNOWN = {
    "html", "head", "meta", "title", "style", "body", "script", "header", "main", "section", "article", "h1", "h2",
    "h3", "h4", "p", "div", "span", "ul", "li", "b", "i", "s", "small", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "fieldset", "legend", "input", "button", "output",
}  # fmt: skip


ATTRIBUTES = {
    "class", "style", "title", "data-claim", "data-node", "data-group", "id",
    "type", "placeholder", "aria-label", "role", "hidden", "scope",
    "open", "lang", "charset", "name", "content", "http-equiv",
}  # fmt: skip
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Tags in their order, all text, and titles; AssertionError for what is not closed as it was opened."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in {"style", "script"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def having(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of a class."""
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]
