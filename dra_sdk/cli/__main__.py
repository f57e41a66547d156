"""`python -m dra_sdk.cli`: the command `dra-sdk`, where its script is not on the PATH."""

import sys

from dra_sdk.cli.main import main

sys.exit(main())
