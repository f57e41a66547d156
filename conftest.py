"""Plugins for every test of the repository."""

pytest_plugins = ["tests.leftovers"]
