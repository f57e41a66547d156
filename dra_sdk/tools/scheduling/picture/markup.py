"""HTML from Python: every text is escaped unless it was made here, so that no name in a file can become markup."""

from __future__ import annotations

from html import escape
from typing import Final

_VOID: Final = frozenset({"meta", "link", "br", "input"})


class Html(str):
    """Text that is HTML already; only this module makes it from anything else."""

    __slots__ = ()


Content = Html | str | None
Attribute = str | int | bool | None


def tag(name: str, /, *children: Content, **attributes: Attribute) -> Html:
    """An element. Strings are escaped, None is left out; `class_` is `class`, and `data_x` is `data-x`."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{shown}>" if name in _VOID else f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Content) -> Html:
    """Several pieces one after the other."""
    return Html("".join(text(each) for each in children if each is not None))


def text(content: Html | str) -> Html:
    """A piece as HTML; what no browser shows, such as control characters, becomes a replacement character."""
    return content if isinstance(content, Html) else Html(escape(_visible(content)))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_visible(str(value)))}"'


def _visible(content: str) -> str:
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in content)
