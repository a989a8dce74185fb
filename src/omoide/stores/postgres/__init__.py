"""How does a PostgreSQL server keep memories?"""

from __future__ import annotations
