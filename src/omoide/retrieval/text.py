"""Tokenize and stem text, extract its features, count tokens, score with BM25.

Only the standard library is needed.

Terms are normalized words: compatibility forms, case and Latin accents folded, English endings cut, stop
words left out. Scripts written without spaces give pairs of characters (bigrams) instead. Stores index terms,
so a change of the stemmer needs a new `FEATURES_VERSION`. The English stemmer is light: it cuts endings in
the reverse order of derivation. A stem is rarely a word, which does not matter as long as all forms of a word
share it. Words of other scripts stay as they are.

Features are what a store indexes of a text, one small blob per memory: its length, flags for what it
mentions, and its term ids. The blob is computed once, when the memory is written; windows and statistics are
computed from it at recall.

`estimate_tokens` needs no model and is right within 15 % for English; `token_counter` counts exactly for one
family of models.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from math import ceil, log1p
from sys import byteorder
from typing import NamedTuple
from unicodedata import category, combining, normalize

from omoide.errors import MissingExtra, NotFound

TokenCounter = Callable[[str], int]

K1, B = 0.9, 0.4  # of `bm25`, the defaults of Anserini; `ranking.RankingWeights` has those of recall

ENCODINGS = ("o200k_base", "cl100k_base")
"""Encodings that `token_counter` supports."""

FEATURES_VERSION = 3
"""Version of the blob of a text; increase it when the blob would differ, so that stores compute it again."""

# Bits of `Features.flags`. They are stored: a new flag takes the next bit and a new version.

IS_QUESTION = 1
MENTIONS_TIME = 2
MENTIONS_NUMBER = 4
FIRST_PERSON = 8
MENTIONS_NAME = 16
MENTIONS_PLACE = 32
MENTIONS_REASON = 64
MENTIONS_RECENT = 128
HAS_OCCURRED = 256
"""The memory says when it happened; stores set it, because the text does not tell."""

_MIN_STEM_LENGTH = 3
"""Letters that must remain when an ending is cut; one more for short endings."""

_MAX_WORD_LENGTH = 64
"""Characters of a word that are used; longer runs are not words, and their cost must be bounded."""


STOP_WORDS = frozenset(
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
_WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


class _LetterTable(dict[int, int | None]):
    """A translation table: letters, marks and digits stay, Latin accents go, the rest becomes spaces."""

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        replacement: int | None
        if 0x300 <= code < 0x370:  # the combining accents, which NFKD separated from their letters
            replacement = None
        elif char in "'’":
            replacement = 0x27
        else:
            replacement = code if category(char)[0] in "LNM" or combining(char) else 0x20
        if len(self) < 20_000:  # the table is shared, and texts may use all of Unicode
            self[code] = replacement
        return replacement


_letter_table = _LetterTable()


def normalize_text(text: str) -> str:
    """Fold compatibility forms, case and Latin accents."""
    if text.isascii():
        return text.lower()
    # NFKC before folding, since some compatibility forms have a case; NFC at the end joins what has to stay
    # together, such as Hangul syllables and marks of other scripts.
    folded = normalize("NFKD", normalize("NFKC", text).casefold())
    return normalize("NFC", folded.translate(_letter_table))


def words(text: str) -> list[str]:
    """Return all words of a text, stop words included, folded but not stemmed, without `'s`."""
    folded = normalize_text(text)
    if folded.isascii():
        result = _WORD_PATTERN.findall(folded)
    else:
        result = [part for run in folded.split() for part in _split_run(run.strip("'"))]
    return [word.removesuffix("'s") for word in result]


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    return [term for word in words(text) if (term := term_of(word))]


@lru_cache(maxsize=65_536)
def term_of(word: str) -> str:
    """Return the term of a word from `words`; empty for a stop word."""
    word = word.replace("'", "")[:_MAX_WORD_LENGTH]
    return "" if word in STOP_WORDS else stem(word)


def content_token_indexes(token_words: Sequence[str]) -> list[int]:
    """Return the indexes of an encoder's tokens whose words are content words; all if there are none."""
    content = [at for at, word in enumerate(token_words) if word[:1].isalnum() and term_of(word.strip("'"))]
    return content or [*range(len(token_words))]


@lru_cache(maxsize=65_536)
def term_id(term: str) -> int:
    """Return the stored id of a term: a signed 64-bit hash, the same on every machine."""
    # Not `hash`, which differs between processes. Lone surrogates cannot be encoded, hence "replace".
    digest = blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def chunks(text: str, max_words: int = 80) -> list[str]:
    """Split a text into chunks of about `max_words` words, between sentences where possible."""
    # n words have at least 2n - 1 characters, so short texts need no count; some excess is not worth a cut.
    if len(text) <= max_words * 2 or _word_count(text) <= max_words * 1.5:
        return [text]
    pieces: list[str] = []
    pending: list[str] = []
    size = 0
    for sentence in _sentences(text, max_words):
        length = _word_count(sentence)
        if pending and size + length > max_words:
            pieces.append("".join(pending).strip())
            pending, size = [], 0
        pending.append(sentence)
        size += length
    pieces.append("".join(pending).strip())
    return [piece for piece in pieces if piece] or [text]


_SENTENCE = re.compile(r".+?(?:[.!?。！？]+[\"')\]]*\s+|\n+|(?<=[。！？])|$)", re.DOTALL)  # noqa: RUF001
_PIECE = re.compile(r"\S+\s*")


def _sentences(text: str, max_words: int) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if _word_count(sentence) <= max_words:
            yield sentence
            continue
        # A sentence that is too long is cut between words, and a run without spaces between characters.
        parts = _PIECE.findall(sentence)
        for start in range(0, len(parts), max_words):
            run = "".join(parts[start : start + max_words])
            yield from (run[at : at + max_words * 12] for at in range(0, len(run), max_words * 12))


def _word_count(text: str) -> int:
    """Estimate the number of words; a long run without spaces counts by its characters."""
    return max(len(text.split()), len(text) // 12)


def _split_run(run: str) -> Iterator[str]:
    """Yield the words of one run of letters: the run itself, or bigrams where its script has no spaces."""
    start = 0
    while start < len(run):
        dense = is_unspaced(run[start])
        end = start + 1
        while end < len(run) and is_unspaced(run[end]) == dense:
            end += 1
        part = run[start:end].strip("'")
        if dense and len(part) > 2:
            yield from (part[at : at + 2] for at in range(len(part) - 1))
        elif part:
            yield part
        start = end


def is_unspaced(char: str) -> bool:
    """Return True if the character belongs to a script that is written without spaces."""
    code = ord(char)
    return (
        0x2E80 <= code < 0xA4D0  # Han, kana, Bopomofo, Yi
        or 0xF900 <= code < 0xFB00  # compatibility ideographs
        or 0x20000 <= code < 0x33480  # ideographs beyond the basic plane
        or 0x0E00 <= code < 0x1000  # Thai, Lao, Tibetan
        or 0x1780 <= code < 0x1800  # Khmer
        or 0x1000 <= code < 0x10A0  # Myanmar
    )


_VOWELS = frozenset("aeiouy")

# Each line is a base with forms that the rules below would not lead to it, or would confuse with other words.
_IRREGULAR = {
    form: base
    for line in """
    be am is are was were been being; have has had having; do does did done doing; go goes went gone going
    say said; make made; get got gotten; know knew known; think thought; take took taken; see saw seen
    come came; find found; give gave given; tell told; feel felt; become became; leave left; put putting
    mean meant; keep kept; begin began begun; show shown; hear heard; run ran running; hold held
    bring brought; write wrote written writing; sit sat sitting; stand stood; lose lost losing; pay paid
    meet met; set setting; learn learnt; lead led; grow grew grown; win won winning; teach taught
    buy bought; send sent; build built; fall fell fallen; cut cutting; sell sold; speak spoke spoken
    read reading; spend spent; drive drove driven driving; draw drew drawn; break broke broken; wear wore worn
    choose chose chosen choosing; eat ate eaten; sing sang sung; swim swam swum swimming; fly flew flown
    ride rode ridden riding; catch caught; fight fought; sleep slept; throw threw thrown
    drink drank drunk; steal stole stolen; rise rose risen rising; wake woke woken; hide hid hidden
    forget forgot forgotten
    bite bit bitten; ring rang rung; shake shook shaken; shoot shot; feed fed; lie lay lain lying
    bake baked baking baker bakery; beat beaten; bend bent; blow blew blown; dig dug; freeze froze frozen
    hang hung; hurt hurting; seek sought
    child children; man men; woman women; person people; foot feet; tooth teeth; mouse mice; life lives
    wife wives; knife knives; half halves; leaf leaves; shelf shelves; good better best; bad worse worst
    marry married marriage marries; weigh weight; die died dying death; art artist artistic
    hike hiking hiker hiked hikes; dance dancing dancer danced dances; vacation vacations; gym gyms
    photo photograph photography photographer photos; health healthy; music musical musician
    decide decision; science scientific scientist; bus buses; news; university universities
    """.replace("\n", ";").split(";")
    if line.strip()
    for base, *forms in [line.split()]
    for form in [base, *forms]
}

# Derivational endings, the longest first, in the form that they have after the final y became i.
_SUFFIXES = (
    ("ational", "ate"), ("ization", "ize"), ("isation", "ize"), ("fulness", "ful"), ("ousness", "ous"),
    ("iveness", "ive"), ("biliti", "ble"), ("tional", "tion"), ("lessli", "less"), ("fulli", "ful"),
    ("ousli", "ous"), ("entli", "ent"), ("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("iviti", "ive"),
    ("alli", "al"), ("ness", ""), ("ment", ""), ("ator", "ate"), ("izer", "ize"), ("ship", ""), ("ful", ""),
    ("less", "less"), ("able", ""), ("ible", ""), ("ance", ""), ("ence", ""), ("ion", ""), ("ist", ""),
    ("ism", ""), ("ive", ""), ("ous", ""), ("ize", ""), ("ise", ""), ("ate", ""), ("iti", ""), ("al", ""),
    ("er", ""), ("or", ""), ("ic", ""), ("li", ""),
)  # fmt: skip


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not (word.isascii() and word.isalpha()) or len(word) < _MIN_STEM_LENGTH:
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    word = _without_plural(word)
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    word = _without_tense(word)
    if len(word) > _MIN_STEM_LENGTH and word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _without_derivation(_without_derivation(word))  # one may follow another: care-ful-ness
    if len(word) > _MIN_STEM_LENGTH + 1 and word.endswith("e"):
        word = word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if (
        word.endswith("s")
        and len(word) > _MIN_STEM_LENGTH
        and word[-2] not in "su"  # glass, bonus
        and not word.endswith("is")  # basis
    ):
        return word[:-1]
    return word


def _without_tense(word: str) -> str:
    # The conditions of step 1b of the Porter stemmer: a stem needs a vowel (not "sing" or "red"), doubled
    # consonants become one (stopped), and a final e comes back (created, hoping).
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 2 and not _VOWELS.isdisjoint(root):
            if word.endswith("ied") and len(root) > 2:
                return root
            if len(root) > _MIN_STEM_LENGTH and root[-1] == root[-2] and root[-1] not in "lsz":
                return root[:-1]
            if root.endswith(("at", "bl", "iz")) or _is_short_stem(root):
                return root + "e"
            return root
    return word


def _is_short_stem(root: str) -> bool:
    """Return True if it ends in consonant, vowel, consonant and has no other vowel: hop(e), rid(e)."""
    if len(root) < 2 or root[-1] in "aeiouywx" or root[-2] not in _VOWELS:
        return False
    return _VOWELS.isdisjoint(root[:-2]) and len(root) >= _MIN_STEM_LENGTH


def _without_derivation(word: str) -> str:
    for ending, replacement in _SUFFIXES:
        if word.endswith(ending):
            root = word[: len(word) - len(ending)]
            min_length = _MIN_STEM_LENGTH + (len(ending) < 3 or ending == "ate")
            if len(root) >= min_length and not _VOWELS.isdisjoint(root):
                # "ion" follows s or t (action, not million), and "er" no e (career).
                if (ending == "ion" and root[-1] not in "st") or (ending == "er" and root[-1] == "e"):
                    return word
                return root + replacement
            return word
    return word


_QUESTION_MARK = re.compile(r"[?？؟\u037e][\"')\]\s]*$")  # noqa: RUF001
_TRAILING_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*$")
_DAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_FLAG_PATTERNS = (
    (
        MENTIONS_TIME,
        re.compile(
            r"\b(?:yesterday|tonight|tomorrow|ago|the other day|this morning|since (?:i|we)"
            r"|(?:last|next|this|past) (?:week(?:end)?|month|year|night|summer|winter|spring|fall|autumn|few)"
            rf"|{_DAY}|january|february|march|april|june|july|august|september|october|november|december"
            r"|(?:19|20)\d\d|\w+ (?:days|weeks|months|years))\b",
            re.IGNORECASE,
        ),
    ),
    (
        MENTIONS_RECENT,
        re.compile(r"\b(?:today|just|recently|lately|soon|now|finally|earlier|later)\b", re.IGNORECASE),
    ),
    (
        MENTIONS_NUMBER,
        re.compile(
            r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|couple|hundred|thousand"
            r"|once|twice|several)\b",
            re.IGNORECASE,
        ),
    ),
    (FIRST_PERSON, re.compile(r"\b(?:i|my|me|we|our|us|mine)\b", re.IGNORECASE)),
    (MENTIONS_NAME, re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")),
    (MENTIONS_PLACE, re.compile(r"\b(?:in|at|to|from|near|visited|around) (?:the )?[A-Z]\w+")),
    (
        MENTIONS_REASON,
        re.compile(
            r"\b(?:because|since|so that|in order|reason|inspired|motivat\w*|helps?|makes? me|made me"
            r"|feel|felt)\b",
            re.IGNORECASE,
        ),
    ),
)


class Features(NamedTuple):
    """The indexed features of a text."""

    length: int
    """Number of words, stop words included."""
    flags: int
    terms: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Encode as 64-bit little-endian numbers, the first of which holds length and flags."""
        # The pool reads the blobs of all rows as one array of int64, so the head has the same type.
        numbers = array("q", [min(self.length, 2**31 - 1) | self.flags << 32, *self.terms])
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()


def extract_features(text: str) -> Features:
    """Return the features of a text."""
    text_words = words(text)
    ids = tuple(term_id(term) for word in text_words if (term := term_of(word)))
    return Features(length=len(text_words), flags=_flags(text), terms=ids)


def _flags(text: str) -> int:
    # The end alone decides, without a note in brackets; the slice bounds the cost of long texts.
    flags = IS_QUESTION if _QUESTION_MARK.search(_TRAILING_BRACKETS.sub("", text[-400:])) else 0
    for flag, pattern in _FLAG_PATTERNS:
        if pattern.search(text):
            flags |= flag
    return flags


_WORD_START, _LOWER, _UPPER, _DIGIT, _PUNCTUATION, _NEWLINE, _PER_CHARACTER = (
    0.85,
    0.05,
    0.55,
    0.8,
    0.64,
    0.2,
    0.01,
)
_TWO_BYTES, _THREE_BYTES, _FOUR_BYTES = 0.75, 1.1, 3.0

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""


def _byte_class(byte: int) -> str:
    """Return the class of a UTF-8 byte: letter, digit, punctuation, space, or start of 2, 3 or 4 bytes."""
    if byte < 0x80:
        char = chr(byte)
        if char.isalnum():
            return "0" if char.isdigit() else "A" if char.isupper() else "a"
        return " " if byte <= 0x20 else "."
    return "2" if byte < 0xE0 else "3" if byte < 0xF0 else "4"


_BYTE_CLASSES = "".join(map(_byte_class, range(256))).encode()


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text for any model.

    Word starts, capitals, digits and punctuation are counted, each by one fast pass over the bytes.
    """
    classes = f" {text}".encode(errors="replace").translate(_BYTE_CLASSES, _CONTINUATION_BYTES)
    count = classes.count
    tokens = (
        _WORD_START * (count(b" a") + count(b".a"))
        + _LOWER * count(b"a")
        + _UPPER * count(b"A")
        + _DIGIT * count(b"0")
        + _PUNCTUATION * count(b".")
        + _NEWLINE * text.count("\n")
        + _PER_CHARACTER * (len(classes) - 1)
    )
    if not text.isascii():
        tokens += _TWO_BYTES * count(b"2") + _THREE_BYTES * count(b"3") + _FOUR_BYTES * count(b"4")
    return ceil(tokens)


@cache
def token_counter(encoding: str = ENCODINGS[0]) -> TokenCounter:
    """Return a function that counts tokens as models with this encoding do.

    Raises:
        NotFound: The encoding is not one of `ENCODINGS`.
        MissingExtra: The extra `tokens` is not installed.
    """
    if encoding not in ENCODINGS:
        raise NotFound("encoding", encoding, f"use one of {', '.join(ENCODINGS)}")
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError as error:
        raise MissingExtra("counting tokens exactly", "tokens") from error
    count: TokenCounter = getattr(encodings, encoding)().count
    return count


def bm25(query_terms: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """Return the BM25 score of each text, given as its terms, for the terms of a query.

    For programs without NumPy; `pool.lexical_match` is the same over windows.
    """
    counts = [Counter(terms) for terms in texts]
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0
    rarity = {}
    for term in dict.fromkeys(query_terms):
        frequency = sum(term in count for count in counts)
        rarity[term] = log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    scores = []
    for terms, count in zip(texts, counts, strict=True):
        norm = K1 * (1 - B + B * len(terms) / (mean or 1.0))
        scores.append(sum(rarity[term] * count[term] * (K1 + 1) / (count[term] + norm) for term in rarity))
    return scores
