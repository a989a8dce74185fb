"""Which memories answer a question?

Pure: it knows no store. `features` says what a store keeps of a text, `query` reads the question, `pool`
holds the candidates as columns, `scoring` ranks them and says why.

"""

from __future__ import annotations
