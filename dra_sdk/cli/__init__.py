"""The `dra-sdk` command, one module per subcommand."""
