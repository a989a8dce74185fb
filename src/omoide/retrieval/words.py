"""Which terms does a text hold?

Terms are normalised words: compatibility forms, case and Latin accents folded, English endings cut, stop
words left out. Scripts written without spaces give pairs of characters instead. Only the standard library is
needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from unicodedata import category, combining, normalize

from omoide.retrieval.stemming import stem

STOP = frozenset(
    """
    a about after again all also am an and any are aren as at be because been before being both but by
    can cannot could couldn did didn do does doesn doing don down during each few for from further get
    gets getting got had hadn has hasn have haven having he her here hers herself him himself his how i
    if in into is isn it its itself just ll let lot me more most mustn my myself no nor not now of off
    on once only or other our ours ourselves out over own re really same shan she should shouldn so some
    such than that the their theirs them themselves then there these they this those through to too
    under until up us ve very was wasn we were weren what when where which while who whom whose why will
    with won would wouldn yeah yes you your yours yourself yourselves oh hey hi wow im ive id youre
    thats dont didnt doesnt isnt wasnt cant
    """.split()  # noqa: SIM905
)

_WORDS = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_LONGEST = 64
"""Characters of a word that count: what is longer is no word, and must not cost like many."""


class _Letters(dict[int, int | None]):
    """Letters, marks and digits stay, Latin accents go, everything else becomes a space."""

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        kept: int | None
        if 0x300 <= code < 0x370:
            kept = None
        elif char in "'’":
            kept = 0x27
        else:
            kept = code if category(char)[0] in "LNM" or combining(char) else 0x20
        if len(self) < 20_000:
            self[code] = kept
        return kept


_letters = _Letters()


def normalise(text: str) -> str:
    """The text with compatibility forms, case and Latin accents folded."""
    if text.isascii():
        return text.lower()
    folded = normalize("NFKD", normalize("NFKC", text).casefold())
    return normalize("NFC", folded.translate(_letters))


def words(text: str) -> list[str]:
    """All words, stop words too, folded but not stemmed; without `'s`."""
    folded = normalise(text)
    if folded.isascii():
        found = _WORDS.findall(folded)
    else:
        found = [part for run in folded.split() for part in _cut(run.strip("'"))]
    return [word.removesuffix("'s") for word in found]


def terms(text: str) -> list[str]:
    """The terms of a text in their order, repeated as they are."""
    return [term for word in words(text) if (term := term_of(word))]


@lru_cache(maxsize=65_536)
def term_of(word: str) -> str:
    """The term of one word that `words` gave; empty for a stop word."""
    word = word.replace("'", "")[:_LONGEST]
    return "" if word in STOP else stem(word)


def content(found: Sequence[str]) -> list[int]:
    """Which of an encoder's tokens say something, by the word that each belongs to; all, if none does."""
    kept = [at for at, word in enumerate(found) if word[:1].isalnum() and term_of(word.strip("'"))]
    return kept or [*range(len(found))]


@lru_cache(maxsize=65_536)
def term_id(term: str) -> int:
    """The number under which a term is kept: signed, 64 bits, the same everywhere."""
    digest = blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def chunks(text: str, words: int = 80) -> list[str]:
    """The text in pieces of about that many words, cut between sentences where there are any."""
    if len(text) <= words * 2 or _length(text) <= words * 1.5:
        return [text]
    pieces: list[str] = []
    held: list[str] = []
    size = 0
    for sentence in _sentences(text, words):
        more = _length(sentence)
        if held and size + more > words:
            pieces.append("".join(held).strip())
            held, size = [], 0
        held.append(sentence)
        size += more
    pieces.append("".join(held).strip())
    return [piece for piece in pieces if piece] or [text]


_SENTENCE = re.compile(r".+?(?:[.!?。！？]+[\"')\]]*\s+|\n+|(?<=[。！？])|$)", re.DOTALL)  # noqa: RUF001
_PIECE = re.compile(r"\S+\s*")


def _sentences(text: str, most: int) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if _length(sentence) <= most:
            yield sentence
            continue
        parts = _PIECE.findall(sentence)
        for start in range(0, len(parts), most):
            run = "".join(parts[start : start + most])
            yield from (run[at : at + most * 12] for at in range(0, len(run), most * 12))


def _length(text: str) -> int:
    """About how many words; a long run without spaces counts by its characters."""
    return max(len(text.split()), len(text) // 12)


def _cut(run: str) -> Iterator[str]:
    """One run of letters as words: as it is, or as pairs where its script has no spaces."""
    start = 0
    while start < len(run):
        dense = is_dense(run[start])
        end = start + 1
        while end < len(run) and is_dense(run[end]) == dense:
            end += 1
        part = run[start:end].strip("'")
        if dense and len(part) > 2:
            yield from (part[at : at + 2] for at in range(len(part) - 1))
        elif part:
            yield part
        start = end


def is_dense(char: str) -> bool:
    """Whether the character belongs to a script that is written without spaces."""
    code = ord(char)
    return (
        0x2E80 <= code < 0xA4D0  # Han, kana, Bopomofo, Yi
        or 0xF900 <= code < 0xFB00
        or 0x20000 <= code < 0x33480
        or 0x0E00 <= code < 0x1000  # Thai, Lao, Tibetan
        or 0x1780 <= code < 0x1800
        or 0x1000 <= code < 0x10A0
    )
