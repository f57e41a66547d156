"""What mkdocs calls while it builds the site: add the pages that are not in docs/, and mend links and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from docs.site.repository import ROOT, pages, rewritten, shown

_PICTURE = re.compile(r"^!\[([^\]]*)\]\((\S+/pictures/\S+\.svg|pictures/\S+\.svg)\)$", re.MULTILINE)
_RECORDING = re.compile(r"^(!\[[^\]]*\]\((\S*recordings/\S+\.svg)\))$", re.MULTILINE)
_DRIVER = "<!-- the driver of README.md -->"


class _Site:
    """The pages of one build: where each file of the repository is on the site."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.paths: dict[str, str] = {}

    def read(self) -> None:
        """Find all pages."""
        self.places = pages()
        self.paths = {place: path for path, place in self.places.items()}


_SITE = _Site()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as GitHub does."""
    _SITE.read()
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files outside of docs/; leave out files that are pages."""
    for path, place in _SITE.places.items():
        if place.startswith("files/"):
            files.append(File.generated(config, place, content=shown(path)))
            if (static := files.get_file_from_path(path.removeprefix("docs/"))) is not None:
                files.remove(static)
        elif files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links lead to pages of the site, show the README's driver where a page asks for it, and draw pictures."""
    place = page.file.src_uri
    if page.parent is None:  # the list on the left would have this page alone
        page.meta.setdefault("hide", ["navigation"])
    if place in _SITE.paths and not place.startswith("files/"):
        markdown = rewritten(_SITE.paths[place], markdown, _SITE.places)
    markdown = _RECORDING.sub(r"[\1](\2)", markdown)  # opens it in its own size, for narrow windows
    return _PICTURE.sub(lambda match: _picture(match, place), markdown.replace(_DRIVER, _readme_driver()))


def _picture(match: re.Match[str], place: str) -> str:
    """Return a picture in the page itself, so that it has the colours of the page, light or dark."""
    text = (ROOT / "docs" / Path(place).parent / match[2]).resolve().read_text(encoding="utf-8")
    drawing = re.sub(r"\s*\n\s*", " ", text[text.index("<svg") :]).strip()
    return f'<figure class="picture">{drawing}<figcaption>{match[1]}</figcaption></figure>'


def _readme_driver() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n.*?^```$", text, re.MULTILINE | re.DOTALL)
    return str(block)
