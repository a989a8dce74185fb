"""What is remembered in the benchmarks?

Sentences of about 14 words whose frequencies follow Zipf's law, the same in every run: 100 to a session, half
of the sessions told as messages of a conversation, the others as plain notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, product
from random import Random
from typing import NamedTuple

from omoide.embedders import Embedder, Embedding

SEED = 20110311
PER_SESSION = 100
START = 1_700_000_000_000
TYPES = ("fact", "risk", "task", "plan", "unknown")
SPEAKERS = ("Ann", "Bertram")

# The words that carry no meaning come first, as they do in English: two fifths of all that is said.
_COMMON = (
    "the of and to a in is it you that he was for on are with as I his they be at this have from or had by "
    "but what some we can out other were all your when up how said an each she which do their if will about "
    "then them these so her would him into has more no"
)
COMMON = dict.fromkeys(_COMMON.split(" "))
_WORDS = 30_000


class Item(NamedTuple):
    """One sentence to remember, and where it belongs."""

    text: str
    session: str
    type: str
    at: int
    seq: int | None
    speaker: str | None


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """All words, the commonest first, and their cumulative weights."""
    sounds = [first + second for first, second in product("bdfgklmnprstvz", "aeiou")]
    made = ["".join(parts) for parts in product(sounds, repeat=3)]
    Random(SEED).shuffle(made)
    words = [*COMMON, *made[: _WORDS - len(COMMON)]]
    return words, [*accumulate(1 / rank for rank in range(1, len(words) + 1))]


def items(count: int, start: int = 0) -> Iterator[Item]:
    """So many sentences from a place on."""
    words, weights = vocabulary()
    chance = Random(SEED + start)
    for n in range(start, start + count):
        session, seq = divmod(n, PER_SESSION)
        text = " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(8, 20)))
        told = session % 2 == 1
        yield Item(
            text=text,
            session=session_name(session),
            type=TYPES[n % len(TYPES)],
            at=START + n * 60_000,
            seq=seq if told else None,
            speaker=SPEAKERS[seq % 2] if told else None,
        )


def session_name(number: int) -> str:
    """The name of a session."""
    return f"session-{number:06}"


def questions(found: Sequence[Item], count: int) -> list[tuple[Item, str]]:
    """Questions about some of the items: half of the words of each, among words of asking."""
    chance = Random(SEED + 1)
    asked = []
    for item in chance.choices(found, k=count):
        telling = meaningful(item.text)
        kept = [word for word in telling if chance.random() < 0.5] or telling[:1] or ["bada"]
        asked.append((item, f"what was said about the {' '.join(kept)}?"))
    return asked


def meaningful(text: str) -> list[str]:
    """The words that are worth looking for."""
    return [word for word in text.rstrip("?").split() if word not in COMMON]


class Prepared:
    """An embedder that has done its work before the clock runs."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self.dim = embedder.dim
        self._embedder = embedder
        self._known: dict[str, Embedding] = {}

    def prepare(self, texts: Sequence[str]) -> list[Embedding]:
        """Embed these texts, to have their vectors at hand."""
        found = self._embedder.embed(texts)
        self._known.update(zip(texts, found, strict=True))
        return found

    def forget(self) -> None:
        """Have nothing at hand."""
        self._known.clear()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """The vectors that are at hand; what nobody prepared is embedded now."""
        known = self._known
        if any(text not in known for text in texts):
            self.prepare(texts)
        return [known[text] for text in texts]
