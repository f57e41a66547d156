"""Generates random cases. The same seed and index give the same case."""

from tests.cluster.differential.generate.cases import draw_case

__all__ = ["draw_case"]
