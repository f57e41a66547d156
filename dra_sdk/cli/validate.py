"""`dra-sdk validate`: would an API server take these objects?

Checks ResourceSlice, ResourceClaim, ResourceClaimTemplate, DeviceClass and DeviceTaintRule in YAML or JSON files,
without a cluster. Objects of other kinds are passed over. Exit status: 0 if it would, 1 if not, 2 for a
file that cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dra_sdk.cli.files import STDIN, printable, read_content, shown_name
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.wire.documents import Document, objects, read_documents
from dra_sdk.wire.profile import GATES, NEWEST, OLDEST
from dra_sdk.wire.validation import Problem, ServerProfile, dropped, title, validate
from dra_sdk.wire.validation.decoding import GROUP, KINDS, without_disabled
from dra_sdk.wire.validation.problems import DECODING, split_path

_NAMESPACED = {"ResourceClaim", "ResourceClaimTemplate"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("validate", help="check objects in files against the API", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help=f"YAML or JSON; {STDIN} reads standard input")
    versions = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    parser.add_argument(
        "--server-version", choices=versions, default=versions[-1], help="the server's release (default %(default)s)"
    )
    parser.add_argument(
        "--feature-gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="what the server turned on or off beside its defaults",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per problem; status 1 if there are any, 2 if a file cannot be read."""
    report = _Report(ServerProfile.of(arguments.server_version, arguments.feature_gates))
    for name in arguments.files:
        report.check_file(name)
    print(printable(report.summary()), file=sys.stderr)
    return report.status


def feature_gates(text: str) -> dict[str, bool]:
    """`A=true,B=false` as the API server's own flag takes it; ArgumentTypeError for an unknown gate or value."""
    gates = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if name not in GATES:
            raise argparse.ArgumentTypeError(f"no feature gate {name!r} matters here; these do: {', '.join(GATES)}")
        if value not in {"true", "false"}:
            raise argparse.ArgumentTypeError(f"{pair!r} must be {name}=true or {name}=false")
        gates[name] = value == "true"
    return gates


@dataclass(slots=True)
class _Report:
    """What was found so far."""

    profile: ServerProfile
    checked: int = 0
    problems: int = 0
    unreadable: int = 0
    ignored_kinds: Counter[str] = field(default_factory=Counter)

    @property
    def status(self) -> int:
        """The exit status."""
        return 2 if self.unreadable else 1 if self.problems else 0

    def check_file(self, name: str) -> None:
        """Check all objects of one file."""
        shown = shown_name(name)
        try:
            documents = read_documents(read_content(name), shown)
        except (InvalidObjectError, SettingsError) as error:
            self.unreadable += 1
            print(printable(f"dra-sdk: {error}"), file=sys.stderr)
            return
        if not any(document.value is not None for document in documents):
            print(printable(f"note: {shown} holds no object"), file=sys.stderr)
        for document in documents:
            for place, obj in objects(document.value):
                self._check_object(shown, document, place, obj)

    def _check_object(self, shown: str, document: Document, place: Sequence[str | int], obj: Any) -> None:
        if isinstance(obj, dict) and not _is_ours(obj):
            self.ignored_kinds[str(obj.get("kind") or "no kind")] += 1
            return
        self.checked += 1
        obj = _in_a_namespace(obj)
        subject = title(obj).replace(" ", "/", 1)
        problems, beside = self._judge(obj)
        self.problems += len(problems)
        found = [(each.field, str(each) if each.field else each.detail) for each in problems]
        found += [(each.field, f"warning: {each}") for each in beside]
        found += [(each.field, f"warning: {each}") for each in dropped(obj, self.profile)]
        lines = ((document.line([*place, *split_path(path)]), text) for path, text in found)
        for line, text in sorted(lines, key=lambda each: each[0]):
            print(printable(f"{shown}:{line}: {subject}: {text}"))

    def _judge(self, obj: Any) -> tuple[list[Problem], list[Problem]]:
        """What the server refuses, and what it would refuse beside that, did it not drop the field before it looks."""
        compile_cel = cel_compiler(self.profile)
        found = validate(obj, profile=self.profile, compile_cel=compile_cel)
        if not dropped(obj, self.profile):
            return found, []
        kept = without_disabled(obj, None, self.profile)
        refused = [each for each in found if each.type in DECODING]
        refused += validate(kept, profile=self.profile, compile_cel=compile_cel)
        known = {(each.field, each.type) for each in refused}
        return refused, [each for each in found if (each.field, each.type) not in known]

    def summary(self) -> str:
        """One line for the end."""
        parts = [f"{_count(self.checked, 'object')} checked for Kubernetes {self.profile.version}"]
        parts.append(_count(self.problems, "problem"))
        if self.unreadable:
            parts.append(f"{_count(self.unreadable, 'file')} not readable")
        if self.ignored_kinds:
            parts.append(f"passed over: {', '.join(sorted(self.ignored_kinds))}")
        return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _is_ours(obj: dict[str, Any]) -> bool:
    return str(obj.get("kind")) in KINDS or str(obj.get("apiVersion") or "").startswith(f"{GROUP}/")


def _in_a_namespace(obj: Any) -> Any:
    """The object as `kubectl` sends it: in the default namespace unless it says otherwise."""
    metadata = obj.get("metadata") if isinstance(obj, dict) and str(obj.get("kind")) in _NAMESPACED else None
    return obj | {"metadata": {"namespace": "default"} | metadata} if isinstance(metadata, dict) else obj
