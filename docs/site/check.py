"""Checks a built site: every link leads to a file and an anchor, no page loads anything from elsewhere.

`python -m docs.site.check build/site` prints what is wrong; its exit status is 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Elements with an attribute that a browser follows while it shows a page. `a` is for the reader alone.
_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
_CSS_URL = re.compile(r"""url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""")


@dataclass
class HtmlPage(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = {name: value for name, value in attrs if value is not None}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in _LOADED and _LOADED[tag] in given and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loaded.append(given[_LOADED[tag]])


@cache
def read(path: Path) -> HtmlPage:
    """Read a page of the site."""
    page = HtmlPage()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with a site, one sentence for each problem."""
    for path in sorted(site.rglob("*.html")):
        page, name = read(path), path.relative_to(site)
        for link in page.loaded:
            if urlsplit(link).netloc:
                yield f"{name} loads {link} from elsewhere"
        for link in [*page.links, *page.loaded]:
            if not urlsplit(link).scheme and not urlsplit(link).netloc and path.name != "404.html":
                yield from (f"{name} links to {link}, {reason}" for reason in _dead(path, link))
    for path in sorted(site.rglob("*.css")):
        if _CSS_URL.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads something from elsewhere"


def _dead(page: Path, link: str) -> Iterator[str]:
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        yield "which does not exist"
    elif target.suffix == ".html" and parts.fragment and unquote(parts.fragment) not in read(target).anchors:
        yield "which has no such anchor"


if __name__ == "__main__":
    wrong = list(problems(Path(sys.argv[1])))
    for problem in wrong:
        print(problem, file=sys.stderr)
    pages = len(list(Path(sys.argv[1]).rglob("*.html")))
    print(f"{pages} pages, {len(wrong)} problems")
    sys.exit(bool(wrong))
