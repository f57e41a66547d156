"""What messages have in common: counts, lists that are cut, and guesses at misspelt words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_ALIKE: Final = 0.7
"""How alike two words must be for one to be proposed in place of the other, from 0 to 1."""


def counted(number: int, noun: str) -> str:
    """Return a count such as `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shortened(items: Sequence[str], limit: int) -> str:
    """Return at most `limit` items, joined by commas, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join(items[:limit])
    return f"{shown} and {len(items) - limit} more" if len(items) > limit else shown


def limited(items: Sequence[str], limit: int, noun: str = "") -> list[str]:
    """Return at most `limit` items, and one that says how many more there are: `and 3 more`.

    noun: what the items are, in the singular: with `problem` the last one is `and 3 more problems`.
    """
    more = len(items) - limit
    rest = counted(more, f"more {noun}") if noun else f"{more} more"
    return [*items[:limit], f"and {rest}"] if more > 0 else list(items)


def printable(text: str) -> str:
    """Return the text on one line, with what is not printable as escapes such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def closest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is most like a word, ignoring case; None if none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 (only after a mistake)

    known = {choice.lower(): choice for choice in choices}
    return next((known[match] for match in get_close_matches(word.lower(), known, 1, _ALIKE)), None)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a proposal as the end of a sentence: `; did you mean X?`; empty if no choice is like the word."""
    choice = closest(word, choices)
    return f"; did you mean {choice}?" if choice is not None else ""
