"""Which statements keep memories in a database?"""

from __future__ import annotations
