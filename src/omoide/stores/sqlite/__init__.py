"""How does one SQLite file hold everything?"""

from __future__ import annotations
