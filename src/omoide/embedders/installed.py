"""Is a package there to be imported?"""

from __future__ import annotations

from importlib.util import find_spec


def installed(*packages: str) -> bool:
    """Whether all of the packages could be imported; none of them is imported yet."""
    return all(find_spec(package) is not None for package in packages)
