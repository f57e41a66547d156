"""A side-by-side benchmark of dra_sdk and the Go library, one small driver on each: `python -m tests.bench`."""
