"""The CEL rules of configuration classes, compared with the classes.

def test_the_rules_say_what_the_class_says() -> None:
    assert assert_rules_agree(SerialConfig) == []
"""

from __future__ import annotations

from dra_sdk.model.config import OpaqueConfig
from dra_sdk.tools.configuration.comparison import compare


def assert_rules_agree(*configs: type[OpaqueConfig]) -> list[str]:
    """Assert that no rule is wrong, or refuses what its class takes, on samples of what the schema of the class allows.

    Return a notice for what a class refuses and no rule does, with an example, and for rules that refuse no sample. A
    text that the code of the class checks needs `Field(examples=[…])`, or samples do not get past it.
    """
    comparisons = [(config, compare(config)) for config in configs]
    errors = [f"{config.__name__}.{error}" for config, comparison in comparisons for error in comparison.errors]
    if errors:
        raise AssertionError("\n".join(errors))
    return [notice for _, comparison in comparisons for notice in comparison.notices]
