"""How good is recall?

Conversations are written into a store, questions are asked of it, and the ranks of the turns that hold the
answers are counted. No language model takes part.

"""

from __future__ import annotations
