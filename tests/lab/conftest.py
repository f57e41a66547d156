"""What runs on the host by itself; `inside` runs in the machine (pytest names it there, or nothing of it runs)."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("DRA_SDK_LAB") else ["inside"]
