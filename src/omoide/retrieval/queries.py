"""Parse queries.

A query has terms, speakers that it names, times that it refers to, and a kind. The text for the encoder is
put into the first person: Ann states her memories as "I …", so her name in the query would move its vector
away from them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval.languages import ENGLISH
from omoide.retrieval.languages import STOP_WORDS as STOP_WORDS_BY_LANGUAGE
from omoide.retrieval.tenses import tense_of
from omoide.retrieval.text import is_unspaced, query_terms, terms
from omoide.retrieval.time_words import MONTHS
from omoide.retrieval.times import Interval, intervals

Span = tuple[int, int]

STOP_WORDS = STOP_WORDS_BY_LANGUAGE[ENGLISH]

_MIN_SHORT_NAME = 3
"""Minimum length of a short form, such as Mel for Melanie."""

_MIN_MISSPELT_NAME = 4
_MAX_COMPARED_SPEAKERS = 64
"""Number of speakers up to which misspelt names are corrected; among more, any name resembles another."""

_MAX_READINGS = 3
"""Number of named speakers up to which a query is read for each of them."""

_QUESTION_KINDS = (
    ("when", re.compile(r"\b(?:when|how long|(?:what|which) (?:date|day|month|year|time))\b", re.IGNORECASE)),
    ("count", re.compile(r"\bhow (?:many|much|often|old)\b|\bnumber of\b", re.IGNORECASE)),
    ("where", re.compile(r"\bwhere\b|\b(?:what|which) (?:city|country|place|state|town)\b", re.IGNORECASE)),
    ("who", re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)),
    ("why", re.compile(r"\bwhy\b|\bwhat (?:made|motivated|inspired)\b|\breason\b", re.IGNORECASE)),
)
_ASSISTANT_REFERENCE = re.compile(
    r"\byou(?:'ve| have| had)? (?:\w+ )?(?:recommended|suggested|told|said|mentioned|gave|given|provided"
    r"|listed|explained|advised|wrote|written|showed|shared|described|created|made|proposed"
    r"|drafted|generated)\b"
    r"|\b(?:did|have|had) you (?!know)\w+"
    r"|\byour (?:\w+ )?(?:recommendations?|suggestions?|advice|answers?|reply|list|explanation|response)\b"
    r"|\b(?:assistant|chatbot)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^\W*(?:(?:please|pls|hey|hi|ok|okay|so|now|and)\W+)*(?:(?:can|could|would|will) you (?:please )?"
    r"|(?:i(?:'d| would)? (?:need|want|like) (?:you )?(?:to )?)|help me (?:to )?|let's |i need |i want )?"
    r"(?:write|draft|suggest|recommend|give me|make|plan|create|explain|help|design|summari[sz]e|translate"
    r"|review|refactor|prepare|propose|book|order|compose|put together|generate|compare|outline"
    r"|rewrite|set up"
    r"|(?:an?|some|any) (?:idea|recipe|tip|suggestion|recommendation|quick|short|good))\b"
    r"|\b(?:should i|should we|any (?:ideas?|tips?|advice|suggestions?|recommendations?)"
    r"|what would be a good|how would you|what do you (?:suggest|recommend))\b",
    re.IGNORECASE,
)
_PRONOUNS = {
    "she": "I", "he": "I", "her": "my", "his": "my", "him": "me", "herself": "myself", "himself": "myself",
}  # fmt: skip
_PRONOUN = re.compile(r"\b(?:she|he|her|his|him|herself|himself)\b")
_POSSESSIVE = re.compile(r"['’]s\b|['’](?=\s|$)")
_NAME = re.compile(r"[^\W\d_]+")
_NOT_NAMES = STOP_WORDS | {*MONTHS, *(month[:3] for month in MONTHS)}


class ParsedQuery(NamedTuple):
    """A query with the parts that were parsed from it."""

    text: str
    encoder_text: str
    """Query in the first person of the speaker that it names; this text is embedded."""
    terms: tuple[str, ...]
    """Distinct terms, without the names of speakers in the scope."""
    named_speakers: frozenset[int]
    """Speakers that it names, as indexes into the list of speakers."""
    times: tuple[Interval, ...]
    kind: str
    """Kind of the question: when, count, where, who, why or what."""
    asks_assistant: bool
    """True if it asks for something that the assistant said."""
    name_terms: frozenset[str]
    """The terms that are names: capitalized inside a sentence. They alone do not say what is asked."""
    is_request: bool
    """True if it asks for something to be made, to which preferences and instructions may apply."""
    expects_one: bool
    """True if it asks for a single value: what something is, who does it, when or where it is."""
    expects_many: bool
    """True if it asks for several things, so that no answer replaces another."""
    tense: str = ""
    """`current` if it asks for what is so now, `past` for what was so at first or before; else empty."""
    readings: tuple[ParsedQuery, ...] = ()
    """If it names several speakers: the query as if it named each of them alone."""


def parse_query(text: str, *, now: int, speakers: Sequence[str] = ()) -> ParsedQuery:
    """Parse a query as of the time `now`, in a scope with these speakers."""
    speaker_spans = _find_speakers(text, speakers)
    # From the last to the first: replacing one leaves the positions of those before it valid.
    spans = sorted({span for spans in speaker_spans.values() for span in spans}, reverse=True)
    query = ParsedQuery(
        text=text,
        encoder_text=_to_first_person(text, spans),
        terms=tuple(query_terms(_remove_spans(text, spans))),
        named_speakers=frozenset(speaker_spans),
        times=intervals(text, now),
        kind=next((kind for kind, pattern in _QUESTION_KINDS if pattern.search(text)), "what"),
        asks_assistant=_ASSISTANT_REFERENCE.search(text) is not None,
        name_terms=_name_terms(text),
        is_request=_REQUEST.search(text) is not None,
        expects_one=_ONE.search(text) is not None and not _expects_many(text),
        expects_many=_expects_many(text),
        tense=tense_of(text),
    )
    if not 2 <= len(speaker_spans) <= _MAX_READINGS:
        return query
    readings = []
    for speaker, own_spans in speaker_spans.items():
        alone = sorted({*own_spans}, reverse=True)
        readings.append(
            query._replace(named_speakers=frozenset({speaker}), encoder_text=_to_first_person(text, alone))
        )
    return query._replace(readings=tuple(readings))


_ONE = re.compile(
    r"\b(?:what|who|where|when)(?:'s| is| was)\b|\bwhich (?!of)\w+\b|\bhow (?:much|old|long|tall|big|far)\b"
    r"|\bwhat (?:time|day|date|year|number|kind|size|colou?r|name|version|port|price|address)\b"
    r"|\bwho (?:owns|runs|leads|manages|handles|reviews)\b|\bwhere (?:do|does) \w+ (?:live|work"
    r"|stay|deploy)\b",
    re.IGNORECASE,
)
_MANY = re.compile(
    r"\b(?:all|both|every|each|list|different|how many|how often|various|everything|anything|ever|any of)\b"
    r"|\b(?:which|what|whose|my|our|his|her|their|your|[\w]+'s|are|were|do the|did the|the) (?:\w+ )?"
    r"(?!is\b|was\b|has\b|does\b|this\b)([a-z]{3,}s)\b",
    re.IGNORECASE,
)
_NOT_PLURAL = re.compile(
    r"(?:ss|us|is|ous|news|always|series|does|was|has|goods|days|hours|years|weeks|months|minutes"
    r"|address|boss"
    r"|business|process|access|status|bus|glass|class|gas|times|always|perhaps|maths|physics|plus|less|yes)$",
    re.IGNORECASE,
)


def _expects_many(text: str) -> bool:
    return any(
        match.group(1) is None or not _NOT_PLURAL.search(match.group(1)) for match in _MANY.finditer(text)
    )


def _name_terms(text: str) -> frozenset[str]:
    if text == text.lower():
        return frozenset()
    names = [
        match.group()
        for match in _NAME.finditer(text)
        if match.group()[0].isupper()
        and not match.group().isupper()
        and text[: match.start()].strip()[-1:].isalnum()
    ]
    return frozenset(term for name in names for term in terms(name))


def _find_speakers(text: str, speakers: Sequence[str]) -> dict[int, list[Span]]:
    """Return the spans of each speaker that the text names, by index of the speaker."""
    folded = _fold(text)
    is_lower = text == text.lower()  # an all-lower-case text has no capitals to tell names by
    names = [
        (match.group(), match.span())
        for match in _NAME.finditer(folded)
        if (match.group() not in _NOT_NAMES if is_lower else _may_be_name(text, match))
    ]
    if not is_lower:
        names = _correct_names(names, text, speakers)
    spans_by_speaker: dict[int, list[Span]] = {}
    for at, name in enumerate(speakers):
        parts = _name_parts(name)
        if not parts:
            continue
        spans = [
            span for word, span in names if word in parts or (not is_lower and _is_short_name(word, parts[0]))
        ]
        if is_unspaced(parts[0][0]):  # the name may stand inside a run of letters
            spans = [match.span() for match in re.finditer(re.escape(parts[0]), folded)]
        if spans:
            spans_by_speaker[at] = spans
    return spans_by_speaker


def _may_be_name(text: str, match: re.Match[str]) -> bool:
    # Capitals mark names, but a stop word is capitalized at the start of a sentence anyway ("Will you …").
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in STOP_WORDS or text[:start].strip()[-1:] not in ("", ".", "?", "!")


def _correct_names(
    names: list[tuple[str, Span]], text: str, speakers: Sequence[str]
) -> list[tuple[str, Span]]:
    """Replace misspelt names by those of the speakers."""
    if not names or len(speakers) > _MAX_COMPARED_SPEAKERS:
        return names
    known = {part for name in speakers for part in _name_parts(name)}
    corrected = []
    for word, span in names:
        # The first word of a sentence has a capital anyway.
        if len(word) >= _MIN_MISSPELT_NAME and word not in known and text[: span[0]].strip()[-1:].isalnum():
            word = next((name for name in known if _is_misspelling(word, name)), word)
        corrected.append((word, span))
    return corrected


def _is_misspelling(word: str, name: str) -> bool:
    """Return True if one letter was added, left out, replaced, or swapped with the next one."""
    if word[0] != name[0] or len(name) < _MIN_MISSPELT_NAME or abs(len(word) - len(name)) > 1:
        return False
    at = next((at for at, (a, b) in enumerate(zip(word, name, strict=False)) if a != b), None)
    if at is None:
        return False  # one continues the other: Ann and Anna are two names
    return (
        word[at + 1 :] in (name[at + 1 :], name[at:])
        or word[at:] == name[at + 1 :]
        or (word[at : at + 2] == name[at : at + 2][::-1] and word[at + 2 :] == name[at + 2 :])
    )


def _is_short_name(word: str, first: str) -> bool:
    """Return True if a word is a short form of a first name."""
    if len(word) < _MIN_SHORT_NAME or word in _NOT_NAMES:
        return False
    # One letter less is another name more often than a short form: Ann and Anna.
    return len(first) - len(word) > 1 and first.startswith(word)


@lru_cache(maxsize=4_096)
def _name_parts(name: str) -> tuple[str, ...]:
    """Return the folded words of a name."""
    return tuple(word for word in _NAME.findall(_fold(name)) if len(word) > 1 or is_unspaced(word))


def _fold(text: str) -> str:
    """Remove case and accents, keeping every character at its index."""
    if text.isascii():
        return text.lower()
    # One character for each, so that spans found in the folded text are spans of the text.
    return "".join((normalize("NFKD", char.casefold()) or char)[0] for char in text)


def _to_first_person(text: str, spans: list[Span]) -> str:
    """Replace the named speakers, and pronouns for them, by the first person."""
    if not spans:
        return text
    for start, end in _merge_spans(spans, text):
        possessive = _POSSESSIVE.match(text, end)
        if possessive:
            text = f"{text[:start]}my{text[possessive.end() :]}"
        else:
            text = f"{text[:start]}{'' if is_unspaced(text[start]) else 'I'}{text[end:]}"
    return _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], text)


def _merge_spans(spans: list[Span], text: str) -> list[Span]:
    """Join adjacent spans, those of one name, given from the last to the first."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and end <= joined[-1][0] and not text[end : joined[-1][0]].strip(" -"):
            joined[-1] = (start, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _remove_spans(text: str, spans: list[Span]) -> str:
    for start, end in spans:
        possessive = _POSSESSIVE.match(text, end)
        text = f"{text[:start]} {text[possessive.end() if possessive else end :]}"
    return text


# Fitted to what both encodings make of prose, chats, documentation and code. Beyond ASCII they differ by
# factors; there the numbers lie between the two.
