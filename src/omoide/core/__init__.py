"""The values everything else is made of: pure, frozen, without I/O."""

from __future__ import annotations
