"""How is a URL shown to people?"""

from __future__ import annotations

import re


def masked(url: str) -> str:
    """A URL without the password in it."""
    return re.sub(r"(://[^\s/:@]*):\S*@", r"\1:***@", url)
