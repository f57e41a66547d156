"""The layout of a cluster in a temporary directory."""

from __future__ import annotations

import pytest

from tests.cluster.harness.layout import Layout


@pytest.fixture
def layout(tmp_path) -> Layout:
    made = Layout.of("unit", tmp_path)
    made.logs.mkdir(parents=True)
    return made
