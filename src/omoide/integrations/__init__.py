"""How do programs of others meet a memory, in the protocols they already speak?"""

from __future__ import annotations
