from __future__ import annotations

import pytest

from dra_sdk.cel.types import (
    ANY,
    BOOL,
    DOUBLE,
    DYN,
    INT,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    Type,
    Unifier,
    list_of,
    map_of,
    optional_of,
    param,
    type_of,
)

A = param("A")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (INT, INT),
        (DYN, INT),
        (INT, DYN),
        (ANY, STRING),
        (list_of(INT), list_of(DYN)),
        (map_of(STRING, INT), map_of(DYN, INT)),
        (NULL, QUANTITY),
        (optional_of(INT), optional_of(A)),
        (type_of(INT), type_of(STRING)),
        (INT, A),
    ],
)
def test_what_fits(given: Type, wanted: Type):
    assert Unifier().fit((given,), (wanted,))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (INT, DOUBLE),
        (list_of(INT), list_of(STRING)),
        (list_of(INT), map_of(INT, INT)),
        (QUANTITY, SEMVER),
        (NULL, INT),
        (optional_of(INT), INT),
        (list_of(A), A),
    ],
)
def test_what_does_not_fit(given: Type, wanted: Type):
    assert not Unifier().fit((given,), (wanted,))


def test_a_variable_stands_for_one_type():
    unifier = Unifier()
    assert unifier.fit((INT, list_of(INT)), (A, list_of(A)))
    assert unifier.resolve(list_of(A)) == list_of(INT)
    assert not unifier.fit((STRING,), (A,))


def test_what_does_not_fit_binds_nothing():
    unifier = Unifier()
    assert not unifier.fit((INT, STRING), (A, A))
    assert unifier.resolve(A) == A
    assert unifier.resolve(A, final=True) == DYN


def test_instances_have_variables_of_their_own():
    unifier = Unifier()
    first, second = unifier.instantiate((A, list_of(A)))
    assert second == list_of(first)
    assert first != A
    assert unifier.instantiate((A,)) != (first,)


def test_join_is_the_more_general_one():
    assert Unifier().join(list_of(INT), list_of(DYN)) == list_of(DYN)
    assert Unifier().join(DYN, INT) == DYN
    assert Unifier().join(INT, STRING) is None


def test_a_type_reads_as_in_error_messages():
    assert str(map_of(STRING, list_of(optional_of(BOOL)))) == "map(string, list(optional_type(bool)))"
