"""The CEL rules of a configuration class, compared with the class itself on samples of its parameters.

A rule must refuse nothing that the class takes, or users could not have it. What the class refuses and the policy does
not is found when a pod starts, so it is worth a rule, where CEL can say it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.model.config import OpaqueConfig, wrong_fields
from dra_sdk.tools.configuration.rules import ConfigRules
from dra_sdk.tools.configuration.samples import samples
from dra_sdk.tools.configuration.schema import ConfigSchema

_LONGEST: Final = 300
_VALUE: Final = re.compile(r"'[^']*'|\S*[0-9]\S*|\(got .*", re.DOTALL)
"""What differs between sentences about different values."""


@dataclass(slots=True)
class Comparison:
    """What was found out about one class.

    errors: rules that cannot be compiled, and rules that refuse what the class takes, each once, with an example. Each
        begins with the rule, such as `cel_rules[0]`.
    notices: what the class refuses and no rule does, each sentence once, with an example; rules that refuse no sample.
    """

    errors: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def compare(config: type[OpaqueConfig]) -> Comparison:
    """Compare the rules of a class with the class."""
    comparison = Comparison()
    try:
        _compare(config, comparison)
    except SettingsError as error:
        comparison.notices.append(f"{config.kind} is not compared with its rules: {error}")
    return comparison


def _compare(config: type[OpaqueConfig], comparison: Comparison) -> None:
    schema, rules = ConfigSchema([config]), ConfigRules(config)
    comparison.errors += rules.problems
    idle, refused, noticed = set(rules.names), set[str](), set[str]()
    for parameters in samples(schema, schema.kinds[0]):
        problems = _problems(config, parameters)
        broken = dict(rules.broken(parameters))
        idle -= broken.keys()
        for rule, reason in () if problems else broken.items():
            if rule not in refused:
                refused.add(rule)
                comparison.errors.append(f"{rule} refuses {_shown(parameters)}, which the class takes: {reason}")
        for text in () if broken else problems:
            without_values = _VALUE.sub("", text)
            if without_values not in noticed:
                noticed.add(without_values)
                comparison.notices.append(f"{config.kind} refuses {_shown(parameters)}, and no rule does: {text}")
    comparison.notices += [f"{config.kind}.{rule} refuses no sample" for rule in rules.names if rule in idle]


def _problems(config: type[OpaqueConfig], parameters: JSON) -> list[str]:
    """Return a sentence for each problem; an exception is one."""
    try:
        return [text for _, text in wrong_fields(config, parameters)]
    except Exception as error:  # noqa: BLE001 (the author's code)
        return [f"its own check failed: {type(error).__name__}: {error}"]


def _shown(parameters: JSON) -> str:
    text = json.dumps(parameters, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
