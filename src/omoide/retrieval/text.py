"""Tokenize text, extract its features, count tokens, score with BM25.

Terms are normalized words: compatibility forms, case and Latin accents folded, stemmed in the language of the
text, stop words left out. Scripts written without spaces give pairs of characters (bigrams) instead.
Identifiers give a term for the whole and one for each part: `getUserName` is found as it is, as
`get_user_name`, and by "user name"; `v4.17.2` also as `4.17`. Stores index terms, so a change needs a new
`FEATURES_VERSION`.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.resources import files
from itertools import chain
from math import ceil, log1p
from operator import itemgetter
from sys import byteorder
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import category, combining, normalize

from Stemmer import Stemmer

from omoide.errors import MissingExtra, NotFound
from omoide.retrieval.sentences import sentence_ends

ENGLISH = "en"
_ALGORITHMS = {
    ENGLISH: "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian", "pt": "portuguese",
    "nl": "dutch", "sv": "swedish", "ru": "russian",
}  # fmt: skip

_ELIDING = ("fr", "it")
"""Languages whose articles and pronouns lose their vowel before another: l'hôtel."""

_MIN_WORDS = 3
"""Number of words from which a text may be in another language than English."""

_MIN_EVIDENCE = 0.15
"""Share of the words of a text that must be function words of a language other than English."""


def _load_stop_words() -> Mapping[str, frozenset[str]]:
    lines = files("omoide.retrieval").joinpath("stop_words.txt").read_text("utf-8").splitlines()
    parts = (line.partition(":") for line in lines)
    return MappingProxyType({language: frozenset(words.split()) for language, _, words in parts})


STOP_WORDS = _load_stop_words()
"""Function words by language, folded: without case and accents."""

_LANGUAGES_OF_WORD: dict[str, tuple[str, ...]] = {
    word: tuple(language for language, words in STOP_WORDS.items() if word in words)
    for word in frozenset().union(*STOP_WORDS.values())
    if len(word) > 1 or not word.isascii()  # "C" is a programming language more often than a French pronoun
}


def detect_language(words: Sequence[str]) -> str:
    """Return the language of a text, given as its folded words."""
    counts: dict[str, int] = {}
    for word in words:
        for language in _LANGUAGES_OF_WORD.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    if not counts:
        return ENGLISH
    best = max(counts, key=lambda language: (counts[language], language == ENGLISH))
    # A foreign function word in two or three words is often a name or a loan ("La Paz", "Der Spiegel").
    if (
        counts[best] <= counts.get(ENGLISH, 0)
        or len(words) < _MIN_WORDS
        or counts[best] < _MIN_EVIDENCE * len(words)
    ):
        return ENGLISH
    return best


def is_stop_word(word: str, language: str = ENGLISH) -> bool:
    """Return True if a folded word is a function word of English or of the language."""
    return word in STOP_WORDS[ENGLISH] or word in STOP_WORDS.get(language, ())


def stem(word: str, language: str = ENGLISH) -> str:
    """Return the stem of a folded word."""
    if language in _ELIDING:
        word = word.rsplit("'", 1)[-1]  # l'hôtel
    word = word.replace("'", "")
    if len(word) < 3 or not word.isalpha():
        return word
    if language == ENGLISH:
        word = _IRREGULAR.get(word, word)
    stemmed = _stemmer(language).stemWord(word)
    # Without accents, which are folded, French participles look like nouns: achete(e) needs a second step.
    return str(_stemmer(language).stemWord(stemmed) if language == "fr" else stemmed)


@cache
def _stemmer(language: str) -> Stemmer:
    # Without the cache of PyStemmer: `text.term_of` keeps what it returned.
    return Stemmer(_ALGORITHMS[language], 0)


# Each is a base with forms that Snowball would not lead to it, or would confuse with other words.
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


TokenCounter = Callable[[str], int]

K1, B = 0.9, 0.4  # of `bm25`, the defaults of Anserini; `ranking.RankingWeights` has those of recall

ENCODINGS = ("o200k_base", "cl100k_base")
"""Encodings that `token_counter` supports."""

FEATURES_VERSION = 4
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
IS_INSTRUCTION = 256
MENTIONS_CHANGE = 512
MENTIONS_ADDITION = 1024
HAS_OCCURRED = 2048
"""The memory says when it happened; stores set it, because the text does not tell."""
HAS_PARTS = 4096
"""The blob holds those of several parts, which are rows of their own in a pool."""
STATES_NOTHING = 8192
"""The text only asks, requests, greets or says that nothing is known."""

_MAX_WORD_LENGTH = 64
"""Characters of a word that are used; longer runs are not words, and their cost must be bounded."""


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


def ends(text: str, limit: int) -> str:
    """Return a text, or the beginning and the end of one with more than `limit` characters."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} {text[-half:]}"


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
    text_words = words(text)
    return _terms(text, text_words, detect_language(text_words))


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query.

    Memories may be too short to tell their language, and are then stemmed as English. So a query in another
    language has both stems of each word.
    """
    text_words = words(text)
    language = detect_language(text_words)
    found = _terms(text, text_words, language)
    if language != ENGLISH:
        found += [stem(word) for word in text_words if not is_stop_word(word, language)]
    return [*dict.fromkeys(found)]


def _terms(text: str, text_words: list[str], language: str) -> list[str]:
    if not _has_identifier(text):
        return [term for word in text_words if (term := term_of(word, language))]
    found = []
    for run in text.split():
        found += [term for word in words(run) if (term := term_of(word, language))]
        if _IDENTIFIER_SIGN.search(run) is not None:
            found += _identifier_terms(run[: 4 * _MAX_WORD_LENGTH])
    return found


_IDENTIFIER_SIGN = re.compile(r"[a-z][A-Z]|\w[_/\\@]\w|\w\.\w|\w::\w|\d-\w|\w-\d|\b[A-Za-z](?:\+\+|#)")
_SIGN_OF_IDENTIFIER = re.compile(r"[-_/\\@:+#]")
_DOT_INSIDE = re.compile(r"\.\w")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]")


def _has_identifier(text: str) -> bool:
    """Return True if a text has a word like `user_id`, `v1.2` or `getName`."""
    # Three quick searches rule out most texts, for a quarter of what the whole pattern costs.
    may_have = _SIGN_OF_IDENTIFIER.search(text) or _DOT_INSIDE.search(text) or _CAMEL_CASE.search(text)
    return may_have is not None and _IDENTIFIER_SIGN.search(text) is not None


_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_NAMED_BY_SIGN = re.compile(r"\b([A-Za-z])(\+\+|#)")
_EDGE = "\"'`()[]{}<>,;:.!?"


def _identifier_terms(run: str) -> list[str]:
    """Return the terms that the words of a run of characters do not give: the whole, and hidden parts."""
    found = [f"={letter.lower()}{sign}" for letter, sign in _NAMED_BY_SIGN.findall(run)]
    for piece in re.split(r"[\s/\\@=:]+|[\"'`()\[\]{}<>,;]+", run):
        piece = piece.strip(_EDGE)
        parts = _CAMEL_PART.findall(piece)
        if len(parts) < 2:
            continue
        if version := _VERSION.search(piece):
            numbers = version.group().split(".")
            found += ["=" + ".".join(numbers[:count]) for count in range(2, len(numbers) + 1)]
            if version.end() == len(piece) and version.start() <= 1:
                found.append(numbers[0])  # "v4" is also 4
                continue
        if re.search("[a-z][A-Z]", piece):  # the words of a run without capitals inside are its parts already
            found += [term for part in parts if len(part) > 1 and (term := term_of(part.lower()))]
        # The whole, however its parts are joined: get_user_name is getUserName.
        whole = re.sub(r"[^\w]|_", "", normalize_text(piece))[:_MAX_WORD_LENGTH]
        if term := term_of(whole):  # "oF" is a stop word
            found.append(term)
    return found


@lru_cache(maxsize=65_536)
def term_of(word: str, language: str = ENGLISH) -> str:
    """Return the term of a word from `words`; empty for a stop word."""
    word = word[:_MAX_WORD_LENGTH]
    return "" if is_stop_word(word.replace("'", ""), language) else stem(word, language)


def content_token_indexes(token_words: Sequence[str]) -> list[int]:
    """Return the indexes of an encoder's tokens whose words are content words; all if there are none."""
    language = detect_language(token_words)
    content = [
        at for at, word in enumerate(token_words) if word[:1].isalnum() and term_of(word.strip("'"), language)
    ]
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


_PIECE = re.compile(r"\S+\s*")


def _sentences(text: str, max_words: int) -> Iterator[str]:
    start = 0
    for end in [*sentence_ends(text), len(text)]:
        sentence, start = text[start:end], end
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


_QUESTION_MARK = re.compile(r"[?？؟\u037e][\"')\]\s]*$")  # noqa: RUF001
_TRAILING_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*$")
_CASED_PATTERNS = (
    (MENTIONS_NAME, re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")),
    (MENTIONS_PLACE, re.compile(r"\b(?:in|at|to|from|near|visited|around) (?:the )?[A-Z]\w+")),
)
_WORD_RUN = re.compile(r"\w+")
_ANY_DIGIT = re.compile(r"\d")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


class _Sign(NamedTuple):
    """The words and phrases of lower-case text that set a flag."""

    flag: int
    words: frozenset[str]
    prefixes: tuple[str, ...]
    """Beginnings of words."""
    phrases: dict[str, re.Pattern[str]]
    """Patterns by a word that is in each match, so that few texts are searched."""
    keys: frozenset[str]
    """The keys of `phrases`."""

    def is_in(self, text: str, text_words: set[str]) -> bool:
        """Return True if a text, of which these are the words, shows the sign."""
        if not self.words.isdisjoint(text_words):
            return True
        for word in self.keys & text_words:
            if self.phrases[word].search(text):
                return True
        return bool(self.prefixes) and any(word.startswith(self.prefixes) for word in text_words)


def _sign(flag: int, words: str, prefixes: str = "", phrases: Mapping[str, str] | None = None) -> _Sign:
    """Return a sign; the key of a phrase lists words, of which one is in each match."""
    by_word = {word: re.compile(pattern) for key, pattern in (phrases or {}).items() for word in key.split()}
    return _Sign(flag, frozenset(words.split()), tuple(prefixes.split()), by_word, frozenset(by_word))


_SIGNS = (
    _sign(
        MENTIONS_TIME,
        "yesterday tonight tomorrow ago monday tuesday wednesday thursday friday saturday sunday january"
        " february march april june july august september october november december",
        phrases={
            "other": r"\bthe other day\b",
            "morning": r"\bthis morning\b",
            "since": r"\bsince (?:i|we)\b",
            "week weekend month year night summer winter spring fall autumn few": r"\b(?:last|next|this|past)"
            r" (?:week(?:end)?|month|year|night|summer|winter|spring|fall|autumn|few)\b",
            "days weeks months years": r"\w (?:days|weeks|months|years)\b",
        },
    ),
    _sign(MENTIONS_RECENT, "today just recently lately soon now finally earlier later"),
    _sign(
        MENTIONS_NUMBER,
        "two three four five six seven eight nine ten eleven twelve dozen couple hundred thousand once twice"
        " several",
    ),
    _sign(FIRST_PERSON, "i my me we our us mine"),
    _sign(
        MENTIONS_REASON,
        "because since reason inspired help helps feel felt",
        "motivat",
        {"so": r"\bso that\b", "order": r"\bin order\b", "make makes made": r"\bma(?:kes?|de) me\b"},
    ),
    _sign(
        IS_INSTRUCTION,
        "always never",
        phrases={
            "now": r"\bfrom now on",
            "when whenever": r"\bwhen(?:ever)? (?:i|you)\b",
            "time": r"\b(?:every|any) time i",
            "future": r"\bin (?:the )?future\b",
            "i": r"\bi(?:'d| would)? (?:much |strongly |really )?(?:prefer|hate|like it|want you)"
            r"|\bi'd rather",
            "please pls": r"\b(?:please|pls) (?:don't|do not|keep|use|give|write|call|remember|stop|no)",
            "don": r"\bdon't (?:ever|use|give|call|suggest|recommend|write|send|tell)",
            "more": r"\bno more \w+ing",
            "stop": r"\bstop \w+ing",
            "keep": r"\bkeep (?:it|your|them|answers)",
            "must": r"\bmust (?:always|never|not)",
            "only": r"\bonly ever",
            "by": r"\bby default",
        },
    ),
    _sign(
        MENTIONS_CHANGE,
        "anymore nowadays now instead moved moving switch switched switching change changed changes replaced"
        " replaces replacing migrated upgraded bumped renamed postponed raised lowered retired archived"
        " deprecated supersede supersedes correction actually quit stopped sold new newly finally jetzt"
        " inzwischen umgezogen neue neuen neuer neues maintenant désormais ahora",
        "reschedul cancel settl",
        {
            "longer": r"\bno longer\b",
            "more": r"\bany more\b",
            "these": r"\bthese days\b",
            "as": r"\bas of\b",
            "since": r"\bsince (?:i|we|the)\b",
            "pushed": r"\bpushed (?:back|to)\b",
            "brought": r"\bbrought forward\b",
            "went gone": r"\b(?:went|gone) (?:up|down)\b",
            "scratch": r"\bscratch that\b",
            "turned": r"\bturned \w",
            "gave broke split ended": r"\b(?:gave|broke|split|ended) up\b",
            "took taken": r"\btook over\b|\btaken over\b",
            "nicht": r"\bnicht mehr\b",
            "ne": r"\bne \w+ plus\b",
            "ya": r"\bya no\b",
        },
    ),
    _sign(
        MENTIONS_ADDITION,
        "also too another second third other both besides additionally extra alongside auch aussi también"
        " además",
        phrases={
            "well": r"\bas well\b",
            "addition": r"\bin addition\b",
            "top": r"\bon top\b",
            "more": r"\bone more\b",
            "next": r"\bnext to\b",
            "noch": r"\bnoch eine?[nrs]?\b",
        },
    ),
)


class Features(NamedTuple):
    """The indexed features of a text."""

    length: int
    """Number of words, stop words included."""
    flags: int
    terms: tuple[int, ...]
    parts: tuple[Features, ...] = ()
    """The features of its parts, for a text of several speakers."""

    @classmethod
    def join(cls, parts: tuple[Features, ...]) -> Features:
        """Return the features of a text from those of its parts."""
        terms = tuple(chain.from_iterable(part.terms for part in parts))
        return cls(sum(part.length for part in parts), HAS_PARTS, terms, parts)

    def to_bytes(self) -> bytes:
        """Encode as 64-bit little-endian numbers, the first of which holds length and flags.

        The terms follow, or for each part the number of its numbers, and these.
        """
        # The pool reads the blobs of all rows as one array of int64, so the head has the same type.
        numbers = array("q", [min(self.length, 2**31 - 1) | self.flags << 32])
        if self.parts:
            for part in self.parts:
                numbers.append(len(part.terms) + 1)
                numbers.extend((min(part.length, 2**31 - 1) | part.flags << 32, *part.terms))
        else:
            numbers.extend(self.terms)
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()


_flags_byte = itemgetter(5)


def has_parts(blob: bytes) -> bool:
    """Return True if the blob of features holds those of parts."""
    return bool(_flags_byte(blob) & HAS_PARTS >> 8)


def indexes_with_parts(blobs: Iterable[bytes]) -> list[int]:
    """Return the indexes of the blobs of features that hold those of parts."""
    return [at for at, flags in enumerate(map(_flags_byte, blobs)) if flags & HAS_PARTS >> 8]


def split_features(blob: bytes) -> list[bytes]:
    """Return the blobs of the parts of a text; the blob itself, if it has none or is damaged."""
    if not has_parts(blob):
        return [blob]
    parts, at = [], 8
    while at < len(blob):
        end = at + 8 + 8 * max(int.from_bytes(blob[at : at + 8], "little"), 0)
        parts.append(blob[at + 8 : end])
        at = end
    return parts if parts and all(parts) else [blob]


def extract_features(text: str) -> Features:
    """Return the features of a text."""
    text_words = words(text)
    ids = tuple(map(term_id, _terms(text, text_words, detect_language(text_words))))
    return Features(length=len(text_words), flags=_flags(text), terms=ids)


_MAX_ASKED = 600
"""Characters from which a text counts as telling something, whatever it asks."""
_PARTS_OF_SPEECH = re.compile(r"(?<=[.!?。！？])\s*|\n+")  # noqa: RUF001
_POLITE = re.compile(
    r"^(?:(?:please|pls|hey|hi|hello|ok(?:ay)?|so|and|but|well|also|then|thanks|thank you|good (?:morning|day"
    r"|evening))\b[\s,!.:]*)+",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^(?:(?:what|who|whom|whose|which|where|how|why|when)(?:'s| (?:is|are|was|were|am|do|does|did|can|could"
    r"|should|would|will|has|have|had|much|many|old|long|far|often|about|time|day|city|of)\b)"
    r"|(?:do|does|did|can|could|would|will|should|am|is|are|was|were|have|has) (?:you|i|we|my|there|it)\b"
    r"|(?:tell|show|give|remind) me (?:what|who|where|which|how|why|when|about|my|the|a|again)\b"
    r"|(?:list|explain|describe|summari[sz]e|repeat) |i(?:'d like to| want to| need to) know\b"
    r"|remember(?: that)?\?|any(?:thing)? \w+\?)",
    re.IGNORECASE,
)
_KNOWS_NOTHING = re.compile(
    r"^(?:sorry|unfortunately|i'm afraid)?[\s,]*(?:but )?i (?:do not|don't|cannot|can't|could not|couldn't"
    r"|have no|haven't|am not|'m not)\b.{0,20}\b(?:know|recall|remember|find|sure|aware|idea|information"
    r"|memory|record)\b",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"^(?:i|we|my|our|it|he|she|they)\b"
    r"|\b(?:that|since|because|now|as) (?:i|we|my|our|he|she)\b|\b(?:i'm|i am|i've|i have|i'd|we've|we're)\b",
    re.IGNORECASE,
)


def states_nothing(text: str) -> bool:
    """Return True if a text only asks, requests, greets or says that nothing is known."""
    if len(text) > _MAX_ASKED or not text.strip():
        return False
    for part in _PARTS_OF_SPEECH.split(text):
        sentence = _POLITE.sub("", part.strip())
        if sentence and not _only_asks(sentence):
            return False
    return True


def _only_asks(sentence: str) -> bool:
    if sentence.endswith(("?", "？")) or _ASKS.match(sentence):  # noqa: RUF001
        return _TELLS.search(sentence) is None
    return _KNOWS_NOTHING.match(sentence) is not None or not any(char.isalnum() for char in sentence)


def _flags(text: str) -> int:
    # The end alone decides, without a note in brackets; the slice bounds the cost of long texts.
    end = text[-400:]
    if end.rstrip().endswith("]"):
        end = _TRAILING_BRACKETS.sub("", end)
    flags = IS_QUESTION if _QUESTION_MARK.search(end) else 0
    flags |= STATES_NOTHING if states_nothing(text) else 0
    for flag, pattern in _CASED_PATTERNS:
        if pattern.search(text):
            flags |= flag
    lowered = text.lower()
    if _ANY_DIGIT.search(lowered):
        flags |= MENTIONS_NUMBER | (MENTIONS_TIME if _YEAR.search(lowered) else 0)
    text_words = {*_WORD_RUN.findall(lowered)}
    for sign in _SIGNS:
        if not flags & sign.flag and sign.is_in(lowered, text_words):
            flags |= sign.flag
    return flags


# Fitted to what both encodings make of prose, chats, documentation and code. Beyond ASCII they differ by
# factors; there the numbers lie between the two.
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
        tokenizers = import_module("splintr")
    except ImportError as error:
        raise MissingExtra("counting tokens exactly", "tokens") from error
    # `ordinary`: text that spells a control token, such as <|endoftext|>, is text.
    encode: Callable[[str], list[int]] = tokenizers.Tokenizer.from_pretrained(encoding).encode_ordinary
    return lambda text: len(encode(text))


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
