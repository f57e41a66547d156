"""The `dra-sdk` command: one module for each subcommand, and what several of them share.

A subcommand imports the packages that it calls when it runs, so `dra-sdk run` loads nothing of `dra_sdk.tools`.
"""
