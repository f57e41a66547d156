"""docs/architecture.md is true: its files, names, packages, layers and glossary are those of the code.

The code is parsed, never imported, so a module counts whether or not its dependencies are installed.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dra_sdk"
TEXT = (ROOT / "docs/architecture.md").read_text()
FILE = re.compile(r"[\w./-]+\.py")
DIRECTORY = re.compile(r"[\w./-]+/")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
PLACE = re.compile(r"`([\w./]+\.py)`: ((?:`[\w.]+`(?:, )?)+)")
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
NODE_PACKAGES = [path for path in PACKAGES if path == PACKAGE / "node" or path.parent == PACKAGE / "node"]
MAIN_PACKAGES = [
    path for path in PACKAGES if len(path.relative_to(ROOT).parts) <= 2 or path.parent.name in {"node", "tools"}
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sections() -> dict[str, str]:
    """The text below each heading, by heading without `#` and backticks."""
    parts = re.split(r"^#+ (.+)$", TEXT, flags=re.MULTILINE)
    return {title.replace("`", ""): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables, without their heads."""
    found = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    return [
        each.split(" | ") for each in found if each.split(" | ")[0] not in {"module", "term", "steps", "in", "wing"}
    ]


def steps(text: str) -> list[tuple[int, str]]:
    """The number and the text of each item of the numbered lists."""
    items = re.findall(r"^(\d+)\. (.+(?:\n +.+)*)$", text, re.MULTILINE)
    return [(int(number), " ".join(item.split())) for number, item in items]


def tokens(text: str) -> list[str]:
    """What stands in backticks, outside blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


@cache
def definitions(path: Path) -> frozenset[str]:
    """The classes, functions and constants of a module, and `Class.member` for methods and fields."""
    return frozenset(_defined(ast.parse(path.read_text()).body))


def _defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for each in body:
        match each:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from _defined(each.body, f"{prefix}{name}.")
            case ast.FunctionDef(name=name):
                yield prefix + name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case ast.Assign(targets=targets):
                yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@cache
def all_definitions() -> frozenset[str]:
    """Every name of the package, plain and as `Class.member`."""
    found = {name for path in PACKAGE.rglob("*.py") for name in definitions(path)}
    return frozenset(found | {name.rpartition(".")[2] for name in found})


def test_every_file_and_directory_that_it_names_exists() -> None:
    """Paths begin at the root, at `dra_sdk/`, or at the package that the section is about."""
    named = [
        (title, each)
        for title, body in sections().items()
        for each in tokens(body)
        if FILE.fullmatch(each) or DIRECTORY.fullmatch(each) or each.startswith("dra_sdk/")
    ]
    assert len(named) > 100
    wrong = [
        (title, each)
        for title, each in named
        if not any((base / each).exists() for base in (ROOT, PACKAGE, ROOT / title))
    ]
    assert wrong == []


def test_every_name_that_it_gives_in_backticks_is_one_of_the_code() -> None:
    named = {each for each in tokens(TEXT) if NAME.fullmatch(each) and not FILE.fullmatch(each)}
    packages = {name_of(each).replace("/", ".") for each in PACKAGES}
    packages |= {each.parent.name for each in (ROOT / "drivers").glob("*/*/__init__.py")}
    modules = {name_of(each).removesuffix(".py").replace("/", ".") for each in PACKAGE.rglob("*.py")}
    assert len(named) > 50
    assert sorted(named - all_definitions() - packages - modules) == []


def test_every_step_names_functions_of_the_file_beside_them() -> None:
    found = [place for body in sections().values() for _, step in steps(body) for place in PLACE.findall(step)]
    assert len(found) > 50
    wrong = [
        f"{file}: {name}"
        for file, names in found
        for name in re.findall(r"`([\w.]+)`", names)
        if name not in definitions(PACKAGE / file)
    ]
    assert wrong == []


STEPS_OF_A_CLAIM = ["Start and registration", "Prepare", "Unprepare"]


@pytest.mark.parametrize("title", [*STEPS_OF_A_CLAIM, "How slices are published", "How health flows"])
def test_every_step_says_what_happens_and_where(title: str) -> None:
    listed = steps(sections()[title])
    assert [number for number, _ in listed] == list(range(1, len(listed) + 1))
    assert len(listed) > 4
    wrong = [number for number, text in listed if not re.fullmatch(rf"[^(].+\. \({PLACE.pattern}.*\)", text)]
    assert wrong == []


@pytest.mark.parametrize("title", STEPS_OF_A_CLAIM)
def test_the_table_of_crashes_has_every_step_of_a_claim_once(title: str) -> None:
    covered: list[int] = []
    for numbers, on_disk, crash in rows(sections()[title]):
        first, _, last = numbers.partition(" to ")
        covered += range(int(first), int(last or first) + 1)
        assert on_disk, f"{title}, step {numbers} needs what is on disk"
        assert crash, f"{title}, step {numbers} needs what a crash means"
    assert covered == [number for number, _ in steps(sections()[title])]


def test_a_cell_of_a_table_is_read_at_a_glance() -> None:
    cells = [cell for line in TEXT.splitlines() if line.startswith("|") for cell in line.strip("|").split(" | ")]
    assert [cell for cell in cells if len(cell.split()) > 40] == []


@pytest.mark.parametrize("package", NODE_PACKAGES, ids=name_of)
def test_every_module_of_the_node_has_its_line(package: Path) -> None:
    named = [cells[0].strip("`") for cells in rows(sections()[name_of(package)])]
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    assert Counter(named) == Counter(modules)


@pytest.mark.parametrize("package", MAIN_PACKAGES, ids=name_of)
def test_every_package_has_its_paragraph(package: Path) -> None:
    paragraph = sections()[name_of(package)].split("\n\n|")[0]
    sentences = re.findall(r"\.(?=\s|$)", paragraph)
    assert len(sentences) >= 3, f"{name_of(package)} needs three sentences or more"


def test_every_further_package_is_named_in_the_paragraph_of_the_one_above_it() -> None:
    further = [each for each in PACKAGES if each not in MAIN_PACKAGES]
    missing = [each for each in further if f"`{name_of(each)}`" not in sections()[name_of(each.parent)]]
    assert missing == []


def test_every_term_of_the_glossary_is_defined_where_it_says() -> None:
    found = rows(sections()["Glossary"])
    assert 20 <= len(found) <= 25
    wrong = [
        f"{term} in {module}"
        for term, _, module in found
        if term.strip("`") not in definitions(PACKAGE / module.strip("`"))
    ]
    assert wrong == []
    assert [term for term, count in Counter(cells[0] for cells in found).items() if count > 1] == []


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def test_the_layers_are_those_that_import_linter_checks() -> None:
    expected = {
        container: " → ".join(layer.replace(" | ", ", ").replace(" : ", " and ") for layer in contract["layers"])
        for contract in contracts()
        if contract["type"] == "layers"
        for container in contract["containers"]
    }
    table = {cells[0].strip("`"): cells[1] for cells in rows(sections()["Layers"])}
    assert table == expected


def test_every_contract_of_import_linter_is_listed() -> None:
    listed = re.findall(r"^- (.+)$", sections()["Layers"], re.MULTILINE)
    assert listed == [each["name"] for each in contracts()]


def test_the_page_is_linked_where_a_contributor_begins() -> None:
    for page in ("README.md", "docs/README.md", "docs/contributing.md"):
        assert "architecture.md" in (ROOT / page).read_text(), page
        assert "decisions.md" in (ROOT / page).read_text(), page
