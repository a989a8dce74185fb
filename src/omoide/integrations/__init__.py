"""Connect Omoide to other programs through the protocols they speak."""

from __future__ import annotations
