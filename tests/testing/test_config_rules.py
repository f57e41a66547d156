"""An author's test of rules: what is wrong fails it, what is missing is returned."""

from __future__ import annotations

import pytest

from dra_sdk import CelRule
from dra_sdk.testing import assert_rules_agree
from tests.tools.configuration.shapes import Odd, Plate


class Strict(Plate, api_version="shapes.example.com/v3"):
    cel_rules = (CelRule("self.low != 2", "low must not be 2"), CelRule("self.lw == 1", "misspelt"))


def test_rules_that_say_what_the_class_says() -> None:
    assert assert_rules_agree(Plate) == []


def test_wrong_rules_of_all_classes_are_told_at_once() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_rules_agree(Plate, Strict, Strict)
    wrong = "Strict.cel_rules[1]: line 1, column 5: undefined field 'lw'\n"
    refused = 'Strict.cel_rules[0] refuses {"low": 2}, which the class takes: low must not be 2'
    assert str(caught.value) == "\n".join([wrong + refused] * 2)


def test_what_no_rule_says_is_returned() -> None:
    assert len(assert_rules_agree(Odd)) == 2
