"""Runs tests on the newest Python: `python -m tests.newest`."""
