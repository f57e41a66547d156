"""Which files of the repository are pages of the site, and where: found by following links.

Pages link to each other and to files as they lie in the repository, so that they can be read there. On the site, the
pages of `docs/` keep their place, Markdown files elsewhere become pages too, and every other file or directory that a
page links to is a page that shows its text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FRONT: Final = "docs/index.md"
INDEX: Final = "docs/README.md"
"""The list of pages for readers of the repository. On the site, the navigation takes its place."""
_LINK: Final = re.compile(r"(?<=\]\()(?!https?:|mailto:)([^)\s]+)(?=\))")
_CODE: Final = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".sh": "sh"}
_PICTURES: Final = {".svg", ".png"}


def sources() -> list[str]:
    """Return the Markdown files that are pages wherever they are linked, as paths in the repository."""
    paths = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "drivers").glob("*/*.md"),
    ]
    return sorted({path.relative_to(ROOT).as_posix() for path in paths} - {INDEX})


def links(text: str) -> Iterator[str]:
    """Yield the links of a page to other files, without those in code."""
    for match in _LINK.finditer(_CODE.sub("", text)):
        if not match[1].startswith("#"):
            yield match[1]


def target(page: str, link: str) -> str:
    """Return the path in the repository that a link of a page leads to."""
    path = os.path.normpath(PurePosixPath(page).parent / link.partition("#")[0])
    return FRONT if path == INDEX else path


def pages() -> dict[str, str]:
    """Return each file and directory that is a page, with its path on the site."""
    places: dict[str, str] = {}
    waiting = sources()
    while waiting:
        path = waiting.pop()
        if path in places or not (ROOT / path).exists() or Path(path).suffix in _PICTURES:
            continue
        places[path] = _place(path)
        if path.endswith(".md"):
            waiting.extend(target(path, link) for link in links((ROOT / path).read_text(encoding="utf-8")))
    return dict(sorted(places.items()))


def _place(path: str) -> str:
    if not path.endswith(".md"):
        return f"files/{path}.md"
    return {"README.md": "readme.md"}.get(path, path.removeprefix("docs/"))


def rewritten(path: str, text: str, places: dict[str, str]) -> str:
    """Return the text of a page whose links lead to pages of the site."""

    def place(match: re.Match[str]) -> str:
        link = match[1]
        file, _, anchor = link.partition("#")
        to = places.get(goal := target(path, link))
        if to is None and Path(goal).suffix in _PICTURES:
            to = goal.removeprefix("docs/")
        if not file or to is None:
            return link
        start = PurePosixPath(places[path]).parent
        kept = f"#{anchor}" if anchor and goal != FRONT else ""
        return os.path.relpath(to, start) + kept

    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(place, text[end : code.start()]), code[0]]
        end = code.end()
    # A link may have code as its text, `[`name`](path)`: its second half is in the next part, where it is found too.
    return "".join([*parts, _LINK.sub(place, text[end:])])


def shown(path: str) -> str:
    """Return the page of a file, or of a directory with all its files."""
    file = ROOT / path
    files = sorted(path for path in file.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    if not file.is_dir():
        return f"# {file.name}\n\n`{path}`\n\n{_block(file)}"
    sections = [f"## {path.relative_to(file)}\n\n{_block(path)}" for path in files]
    return "\n".join([f"# {path}\n", *sections])


def _block(file: Path) -> str:
    return f"````{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"
