"""Repeats the tests with threads, sockets or processes in random order under load: `python -m tests.soak`."""
