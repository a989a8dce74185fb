"""Memories on a Redis server, for several machines at once."""
