"""Which words are forms of one word?

A light English stemmer: endings are cut in the order in which they were put on, and what is left is rarely a
word, which does not matter as long as all forms leave the same. Words of other scripts pass untouched.
"""

from __future__ import annotations

from functools import lru_cache

_VOWELS = frozenset("aeiouy")

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

_DERIVED = (
    ("ational", "ate"), ("ization", "ize"), ("isation", "ize"), ("fulness", "ful"), ("ousness", "ous"),
    ("iveness", "ive"), ("biliti", "ble"), ("tional", "tion"), ("lessli", "less"), ("fulli", "ful"),
    ("ousli", "ous"), ("entli", "ent"), ("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("iviti", "ive"),
    ("alli", "al"), ("ness", ""), ("ment", ""), ("ator", "ate"), ("izer", "ize"), ("ship", ""), ("ful", ""),
    ("less", "less"), ("able", ""), ("ible", ""), ("ance", ""), ("ence", ""), ("ion", ""), ("ist", ""),
    ("ism", ""), ("ive", ""), ("ous", ""), ("ize", ""), ("ise", ""), ("ate", ""), ("iti", ""), ("al", ""),
    ("er", ""), ("or", ""), ("ic", ""), ("li", ""),
)  # fmt: skip
_SHORTEST = 3
"""Letters that have to stay when an ending is cut, one more for the short endings."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if not (word.isascii() and word.isalpha()) or len(word) < _SHORTEST:
        return word
    known = _IRREGULAR.get(word)
    if known is not None:
        return known
    word = _without_plural(word)
    known = _IRREGULAR.get(word)
    if known is not None:
        return known
    word = _without_tense(word)
    if len(word) > _SHORTEST and word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _without_derivation(_without_derivation(word))
    if len(word) > _SHORTEST + 1 and word.endswith("e"):
        word = word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and len(word) > _SHORTEST and word[-2] not in "su" and not word.endswith("is"):
        return word[:-1]
    return word


def _without_tense(word: str) -> str:
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 2 and not _VOWELS.isdisjoint(root):
            if word.endswith("ied") and len(root) > 2:
                return root
            if len(root) > _SHORTEST and root[-1] == root[-2] and root[-1] not in "lsz":
                return root[:-1]
            if root.endswith(("at", "bl", "iz")) or _is_short(root):
                return root + "e"
            return root
    return word


def _is_short(root: str) -> bool:
    """Whether it ends consonant, vowel, consonant and has no other vowel: hop(e), rid(e)."""
    if len(root) < 2 or root[-1] in "aeiouywx" or root[-2] not in _VOWELS:
        return False
    return _VOWELS.isdisjoint(root[:-2]) and len(root) >= _SHORTEST


def _without_derivation(word: str) -> str:
    for ending, instead in _DERIVED:
        if word.endswith(ending):
            root = word[: len(word) - len(ending)]
            least = _SHORTEST + (len(ending) < 3 or ending == "ate")
            if len(root) >= least and not _VOWELS.isdisjoint(root):
                if (ending == "ion" and root[-1] not in "st") or (ending == "er" and root[-1] == "e"):
                    return word
                return root + instead
            return word
    return word
