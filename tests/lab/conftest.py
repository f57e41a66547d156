"""Runs the tests of the harness on this machine. Those in `inside` run in the virtual machine only."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("DRA_SDK_LAB") else ["inside"]
