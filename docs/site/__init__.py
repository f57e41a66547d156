"""Builds the site of docs/: `make site`. Nothing here is part of dra_sdk."""
