"""The `dra-sdk` command: one module for each subcommand, and what several of them share."""
