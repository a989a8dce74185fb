"""Tell whether a query asks for the present state of things, or for an earlier one."""

from __future__ import annotations

import re
from unicodedata import normalize

from omoide.retrieval.time_words import MONTHS, WEEKDAYS

_MAX_LENGTH = 1_000
"""Characters of a query in which words of tense are looked for."""
_WORD = re.compile(r"\w+")
_OWNER = r"(?:my|your|his|her|our|their|the|mein\w*|dein\w*|unser\w*|mon|ma|mes|mi|mis|\w's)"
_STATE = (  # what lasts until something else takes its place; "before" ends it, unlike an event
    r"(?:live|living|lived|work|worked|working|use|used|drive|drove|own|owned|study|studied|prefer|preferred"
    r"|call|called|wohn\w*|gewohnt|gelebt|arbeit\w*|gearbeitet|habit\w*|travaill\w*|utilis\w*"
    r"|viv\w*|trabaj\w*|usa\w*|llama\w*)"
)
_TIME_AFTER = (
    rf" (?:the |my )?(?:\d|noon|midnight|bed|breakfast|lunch|dinner|{'|'.join([*MONTHS, *WEEKDAYS])})"
)
_STARTS = frozenset(
    """
    use used orig init prev form earl past begi firs back befo prio old now nowa curr newe pres thes stil
    mome as toda late most up vor bevo ursp früh zuer zunä anfa vorh dama alte erst ehem jetz derz aktu zurz
    heut
    gege imme noch neue neus avan autr aupa débu préc époq anci prem main actu réce ante anti prin prim
    inic ento solí ahor aún reci
    """.split()  # noqa: SIM905
)
"""First four letters of the words below: most queries have none of them, and need no search."""
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# In this order: a question for an earlier state may name the current one, too.
_PATTERNS = tuple(
    (tense, re.compile("|".join(patterns)))
    for tense, patterns in (
        (
            "past",
            (
                r"(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )(?<!been )(?<!get )(?<!getting )(?<!got )"
                r"(?<!am )(?<!'m )(?<!'re )\bused to\b",
                r"\bat first\b(?! sight| glance)",
                r"\bdid (?:\S+ ){1,3}use to\b",
                r"\b(?:originally|initially|previously|formerly|back then|back when)\b",
                rf"\b{_STATE}\b.{{0,80}}\b(?:before|prior to|vor(?!her)|bevor|avant|antes)\b",
                rf"\b(?:was|were|had|did|\w{{3,}}ed)\b(?!.{{0,80}}\b(?:do|happen)\b).{{0,80}}\bbefore\b(?!{_TIME_AFTER})",
                rf"\b{_OWNER} earlier \w|\bearlier\W*$|\bin the past\W*$|\bat the beginning\b(?! of)",
                r"\b(?:ursprünglich|früher|zuerst|zunächst|anfangs|vorher|damals)\b",
                r"\b(?:à l'origine|autrefois|auparavant|au début|initialement|précédemment|à l'époque)(?!\w)",
                r"\b(?:originalmente|inicialmente|al principio|antiguamente|previamente|en aquel entonces)\b"
                r"|\bsolía",
                r"最初|以前|昔|元々|原来|当初",
            ),
        ),
        (
            "current",
            (
                r"(?<!from )(?<!until )(?<!by )\bnow\b(?! and then)",
                r"\b(?:nowadays|currently|newest|presently|these days|still|at the moment|at present)\b",
                r"\b(?:as of|today's)\b",
                r"(?<!at the )\blatest\b",
                r"\bmost (?:recent|current|up[ -]to[ -]date)\b|\bup[ -]to[ -]date\b|\bcurrent \w",
                r"\b(?:jetzt|derzeit|momentan|aktuell\w*|zurzeit|heutzutage|gegenwärtig|immer noch"
                r"|noch immer|im moment|neue?ste[nrsm]?)\b",
                r"\b(?:maintenant|actuellement|en ce moment|actuel(?:le)?s?|plus récente?s?)\b|\bà présent\b",
                r"\b(?:ahora|actualmente|todavía|aún|en este momento|más recientes?)\b"
                r"|\b(?:mi|tu|su|el|la|los|las) \w+ actual(?:es)?\b",
                r"現在|今は|最新|目前|现在",
            ),
        ),
        (
            "past",
            (
                r"(?<!name )(?<!safety )\bfirst\b(?![ -](?:names?|aid|class|floor|lady|person|place|prize"
                r"|responders?|language|grade|degree|hand|half|quarter|weekend|week|month|of|thing|\d+|two|three"
                r"|four|five|ten)\b|-)",
                rf"\b{_OWNER} old (?!man|woman|friend|people|lady|town|school|age)\w",
                r"\bformer\b|\b(?:previous|prior) (?!day|night|week|month|quarter|year|\d|two|three|few)\w",
                r"(?<!middle )\b(?:initial|original)\b",
                rf"\b{_OWNER} (?:alte[nrsm]?|erste[nrsm]?(?! hilfe)|premi(?:er|ère)|primer[oa]?)\b",
                r"\b(?:ehemalig\w*|vorherige\w*|précédente?s?|anterior(?:es)?|antigu[oa]s?|ancien(?:ne)?s?)\b",
            ),
        ),
    )
)


def tense_of(text: str) -> str:
    """Return `past` or `current` if the text asks for an earlier or for the present state, or nothing."""
    text = normalize("NFC", text[:_MAX_LENGTH]).lower().replace("\n", " ").replace("’", "'")
    if _STARTS.isdisjoint(word[:4] for word in _WORD.findall(text)) and not _IDEOGRAPH.search(text):
        return ""
    return next((tense for tense, pattern in _PATTERNS if pattern.search(text)), "")
