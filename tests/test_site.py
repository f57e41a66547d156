"""What the site is made of, as far as no site is needed: navigation, links, pictures, the generated pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from docs.site import reference
from docs.site.check import problems
from docs.site.markdown import prose
from docs.site.releases import FEATURES, releases
from docs.site.repository import FRONT, INDEX, ROOT, links, pages, rewritten, shown, target
from docs.site.signatures import signature
from dra_sdk.wire.profile import GATES

PLACES = pages()
PICTURES = sorted([*(ROOT / "docs").rglob("pictures/*.svg"), *(ROOT / "docs").rglob("recordings/*.svg")])
BASE = '<link rel="stylesheet" href="site.css"><a id="top" href="other.html#here">'


def navigation(entry: Any) -> Iterator[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(each)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {place for place in PLACES.values() if not place.startswith("files/")}


def test_the_pages_of_docs_keep_their_place_and_others_get_one() -> None:
    assert PLACES[FRONT] == "index.md"
    assert PLACES["docs/how-to/nri.md"] == "how-to/nri.md"
    assert PLACES["drivers/cpu/README.md"] == "drivers/cpu/README.md"
    assert PLACES["docs/examples/fpga/fpga_driver.py"] == "files/docs/examples/fpga/fpga_driver.py.md"
    assert INDEX not in PLACES


def test_links_lead_from_page_to_page() -> None:
    assert rewritten("README.md", "![demo](docs/recordings/demo.svg)", PLACES) == "![demo](recordings/demo.svg)"
    text = "[a](../README.md#test-it) [`b`](how-to/nri.md) [c](https://example.com/d.md) `[e](../README.md)` [f](#here)"
    expected = (
        "[a](readme.md#test-it) [`b`](how-to/nri.md) [c](https://example.com/d.md) `[e](../README.md)` [f](#here)"
    )
    assert rewritten("docs/driver.md", text, PLACES) == expected
    assert rewritten("README.md", "[all](docs/README.md#learn-lessons)", PLACES) == "[all](index.md)"
    assert list(links(text)) == ["../README.md#test-it", "how-to/nri.md"]
    assert target("drivers/cpu/README.md", "../../docs/install.md#x") == "docs/install.md"


def test_a_file_and_a_directory_are_shown_with_their_text() -> None:
    assert "```yaml" in shown("docs/examples/pizza.yaml")
    chart = shown("deploy/chart")
    assert "## Chart.yaml" in chart
    assert "## templates/" in chart


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_well_formed_and_loads_nothing(path: Path) -> None:
    root = ET.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox")
    assert not re.search(r"url\(['\"]?http|href=['\"]http|<script", path.read_text())


@pytest.mark.timeout(120)
def test_a_page_of_the_reference_is_stale_if_the_code_says_something_else(tmp_path: Path) -> None:
    stale = [path.name for path in reference.written(shutil.copytree(reference.REFERENCE, tmp_path / "pages"))]
    assert not stale, f"stale in docs/reference: {', '.join(stale)}; `make reference` renews them"
    (tmp_path / "pages/hooks.md").write_text("old")
    (tmp_path / "pages/releases.md").unlink()
    assert [path.name for path in reference.written(tmp_path / "pages")] == ["hooks.md", "releases.md"]


def test_every_page_of_the_reference_is_in_its_list() -> None:
    listed = list(links((reference.REFERENCE / "README.md").read_text()))
    assert [link for link in listed if "/" not in link] == [f"{name}.md" for name in reference.PAGES]


def test_every_feature_gate_is_described() -> None:
    assert set(FEATURES) == set(GATES)
    table = releases()
    assert "| `DRAPartitionableDevices` | off | off | **on** | **on** |" in table
    assert "| `DRADerivedAttributes` | no | no | no | off |" in table


def test_the_reference_has_hooks_and_names() -> None:
    assert "## dra_prepare\n\n*required*" in reference.page("hooks")
    model = reference.page("model")
    assert "| `consumes` | counters that the device takes while it is allocated" in model
    for module in ("settings", "nri", "extensions"):
        assert f"\n## dra_sdk.{module}\n" in model
    assert "(../how-to/extension.md)" in model
    assert "\n## dra_sdk.testing.node_state\n" in reference.page("testing")


def test_the_reference_has_each_command_with_its_flags() -> None:
    text = reference.page("commands")
    assert "## dra-sdk capture\n\n```text\ndra-sdk capture [flags] --output FILE.tar.gz\n```\n" in text
    assert "| `-q, --quiet` | print only failures and the score |" in text
    assert "| `new` | write a new driver, with tests and manifests |" in text


@pytest.mark.timeout(120)
def test_the_reference_has_the_metrics_of_a_driver() -> None:
    text = reference.page("metrics")
    assert "| `dra_sdk_claims_held` | gauge | Claims that hold devices |" in text
    assert "| `dra_sdk_nri_connected` | gauge |" in text
    assert "| `dra_sdk_api_requests_total` | counter |" in text


def test_a_docstring_becomes_markdown_without_html() -> None:
    text = prose("""What `a|b` is, *in* short: List<int>, see `docs/install.md`.

    size: bytes, or
        `1 | 2`.
    low, high: limits.

        x = 1

        y = <2>

    ```
    a|b

    *
    ```
    """)
    assert (
        text
        == """What `a|b` is, \\*in\\* short: List&lt;int>, see [`docs/install.md`](../install.md).

| name | what |
|---|---|
| `size` | bytes, or <code>1 &#124; 2</code>. |
| `low`, `high` | limits. |

```python
x = 1

y = <2>
```

```
a|b

*
```
"""
    )


def test_a_signature_is_written_as_its_author_wrote_it() -> None:
    def some(
        self: object, path: Path = Path("/"), *, mode: int = 0o660, text: str = "", further: object = ...
    ) -> Iterator[str]:
        raise NotImplementedError

    shown = 'some(path: Path = Path("/"), *, mode: int = 0o660, text: str = "", further: object = …) -> Iterator[str]'
    assert signature("some", some, folded=False) == shown
    assert signature("long_name", some).splitlines()[:3] == ["long_name(", '    path: Path = Path("/"),', "    *,"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages."""
    (tmp_path / "site.css").write_text("a { color: red }")
    (tmp_path / "index.html").write_text(BASE)
    (tmp_path / "other.html").write_text('<p id="here"><a href="https://example.com">')
    return tmp_path


def test_a_site_without_problems_has_none(site: Path) -> None:
    assert list(problems(site)) == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("new.html", '<a href="gone.html">', "new.html links to gone.html, which does not exist"),
        ("new.html", '<a href="index.html#gone">', "new.html links to index.html#gone, which has no such anchor"),
        ("new.html", '<img src="//example.com/a.png">', "new.html loads //example.com/a.png from elsewhere"),
        (
            "new.html",
            '<script src="https://example.com/a.js">',
            "new.html loads https://example.com/a.js from elsewhere",
        ),
        ("new.css", "@import 'https://example.com/a.css';", "new.css loads something from elsewhere"),
        ("new.css", "p { background: url(//example.com/a.png) }", "new.css loads something from elsewhere"),
    ],
)
def test_a_problem_of_a_site_is_found(site: Path, file: str, text: str, problem: str) -> None:
    (site / file).write_text(text)
    assert list(problems(site)) == [problem]
