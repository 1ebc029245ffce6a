"""How much the hostile tests do: SPARRING_HOSTILE=10 is ten times as much as by default."""

from __future__ import annotations

import os

FACTOR = max(1, int(os.environ.get("SPARRING_HOSTILE", "1")))
