"""What `dra-sdk validate` found, in the formats that people, scripts and CI systems read.

Source: SARIF 2.1.0 (OASIS), which code scanning of GitHub and GitLab shows at its line; JUnit XML as Jenkins reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Final
from xml.sax.saxutils import quoteattr

from dra_sdk.texts import printable

FORMATS: Final = ("text", "json", "sarif", "junit")
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """One problem or warning.

    file: the file.
    line: the line, from 1.
    object: kind and name, such as `ResourceClaim/train`; empty if the file cannot be read.
    field: the path of the field; empty for the object itself.
    text: what is wrong.
    level: `error` for what a server refuses, `warning` for what it drops.
    """

    file: str
    line: int
    object: str
    field: str
    text: str
    level: str = "error"

    def __str__(self) -> str:
        parts = [f"{self.file}:{self.line}", self.object, "warning" if self.level == "warning" else "", self.field]
        return printable(": ".join([*filter(None, parts), self.text]))


def report(findings: Sequence[ValidationFinding], checked: Sequence[tuple[str, str]], output: str) -> str:
    """Return the findings in a format of FORMATS; `checked` has file and title of each object, for JUnit's cases."""
    if output == "text":
        return "".join(f"{finding}\n" for finding in findings if finding.object)  # stderr has the other files
    if output == "junit":
        return _junit(findings, checked)
    document = (
        _sarif(findings) if output == "sarif" else {"checked": len(checked), "findings": list(map(asdict, findings))}
    )
    return json.dumps(document, indent=2) + "\n"


def _sarif(findings: Sequence[ValidationFinding]) -> dict[str, object]:
    driver = {"name": "dra-sdk validate", "version": version("dra-sdk"), "rules": [{"id": "resource.k8s.io"}]}
    results = [
        {
            "ruleId": "resource.k8s.io",
            "level": finding.level,
            "message": {"text": ": ".join(filter(None, (finding.object, finding.field, finding.text)))},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": finding.file}, "region": {"startLine": finding.line}}}
            ],
        }
        for finding in findings
    ]
    return {"version": "2.1.0", "$schema": _SARIF_SCHEMA, "runs": [{"tool": {"driver": driver}, "results": results}]}


def _junit(findings: Sequence[ValidationFinding], checked: Sequence[tuple[str, str]]) -> str:
    cases = list(dict.fromkeys([*checked, *((finding.file, finding.object) for finding in findings)]))
    errors = [finding for finding in findings if finding.level == "error"]
    lines = []
    failed = 0
    for file, name in cases:
        own = [error for error in errors if (error.file, error.object) == (file, name)]
        failed += bool(own)
        case = f"  <testcase classname={_attribute(file)} name={_attribute(name or file)}"
        failures = [f"    <failure message={_attribute(str(error))}/>" for error in own]
        lines += [f"{case}>", *failures, "  </testcase>"] if own else [f"{case}/>"]
    head = f'<testsuite name="dra-sdk validate" tests="{len(cases)}" failures="{failed}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *lines, "</testsuite>"]) + "\n"


def _attribute(text: str) -> str:
    return quoteattr(printable(text))
