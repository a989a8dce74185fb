"""Memories on a Redis server, for several machines at once."""

from __future__ import annotations
