"""Detect the language of a text, and stem its words.

The language is that whose function words the text has most of; English where there are none. Words are
stemmed by the Snowball algorithm of the language, English ones with irregular forms first. A stem is rarely a
word, which does not matter as long as all forms of a word share it.

Stores index stems, so a change here needs a new `omoide.retrieval.text.FEATURES_VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from Stemmer import Stemmer

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
