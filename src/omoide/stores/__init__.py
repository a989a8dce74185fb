"""Where do memories live?"""

from __future__ import annotations
