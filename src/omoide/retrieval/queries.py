"""Parse queries.

A query has terms, speakers that it names, times that it refers to, and a kind. The text for the encoder is
put into the first person: Ann states her memories as "I …", so her name in the query would move its vector
away from them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import NamedTuple, overload
from unicodedata import normalize

from omoide.retrieval.text import ENGLISH, STOP_WORDS, ends, is_unspaced, query_terms, terms
from omoide.retrieval.times import MONTHS, WEEKDAYS, Interval, intervals

Span = tuple[int, int]

_STOP_WORDS = STOP_WORDS[ENGLISH]

MAX_QUERY_LENGTH = 4_000
"""Characters of a query that are read, half of them at its end: each of its words is looked up."""

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
_NOT_NAMES = _STOP_WORDS | {*MONTHS, *(month[:3] for month in MONTHS)}


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


def parse_query(
    text: str, *, now: int, speakers: Sequence[str] = (), plain: ParsedQuery | None = None
) -> ParsedQuery:
    """Parse a query as of the time `now`, in a scope with these speakers; a long one is cut.

    Args:
        text: The query.
        now: The time that "yesterday" is relative to.
        speakers: The speakers that the query may name.
        plain: The same query parsed without speakers; the result if it names none of them.
    """
    text = ends(text, MAX_QUERY_LENGTH)
    speaker_spans = _find_speakers(text, speakers)
    if plain is not None and not speaker_spans:
        return plain
    spans = sorted({span for spans in speaker_spans.values() for span in spans}, reverse=True)
    expects_many = _expects_many(text)
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
        expects_one=not expects_many and _ONE.search(text) is not None,
        expects_many=expects_many,
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
        and _char_before(text, match.start()).isalnum()
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


def _char_before(text: str, at: int) -> str:
    """Return the last character before a position that is no white space, or nothing."""
    while at and text[at - 1].isspace():
        at -= 1
    return text[at - 1 : at]


def _may_be_name(text: str, match: re.Match[str]) -> bool:
    # Capitals mark names, but a stop word is capitalized at the start of a sentence anyway ("Will you …").
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in _STOP_WORDS or _char_before(text, start) not in ("", ".", "?", "!")


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
        if len(word) >= _MIN_MISSPELT_NAME and word not in known and _char_before(text, span[0]).isalnum():
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
    replacements = []
    for start, end in _merge_spans(spans, text):
        possessive = _POSSESSIVE.match(text, end)
        if possessive:
            replacements.append((start, possessive.end(), "my"))
        else:
            replacements.append((start, end, "" if is_unspaced(text[start]) else "I"))
    text = _replace_spans(text, replacements)
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
    replacements = []
    for start, end in spans:
        possessive = _POSSESSIVE.match(text, end)
        replacements.append((start, possessive.end() if possessive else end, " "))
    return _replace_spans(text, replacements)


def _replace_spans(text: str, replacements: list[tuple[int, int, str]]) -> str:
    """Replace parts of a text, given from the last to the first."""
    parts: list[str] = []
    rest = len(text)
    for start, end, new in replacements:
        parts += (text[end:rest], new)
        rest = start
    return "".join([*parts, text[:rest]][::-1])


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


class SpeakerNames(Sequence[str]):
    """The speakers of a scope by number, with an index of the words of their names.

    A removed speaker leaves an empty name, so that the numbers of others stay. Queries may be looked up
    while one thread adds and removes names.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._by_part: dict[str, list[int]] = {}
        self._by_first: dict[str, list[int]] = {}
        self._firsts: list[str] = []
        """The first words of all names, sorted."""
        self._unspaced: list[int] = []
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return self._names[at]

    def add(self, name: str) -> int:
        """Return the number of a speaker, adding a new one."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        number = self._numbers[name] = len(self._names)
        self._names.append(name)
        parts = _name_parts(name)
        for part in {*parts}:
            self._by_part.setdefault(part, []).append(number)
        if parts:
            if parts[0] not in self._by_first:
                insort(self._firsts, parts[0])
            self._by_first.setdefault(parts[0], []).append(number)
            if is_unspaced(parts[0][0]):
                self._unspaced.append(number)
        return number

    def remove(self, number: int) -> None:
        """Remove a speaker, if there is one with this number."""
        self._numbers.pop(self._names[number], None)
        self._names[number] = ""

    def named_in(self, text: str) -> list[int]:
        """Return the numbers of the speakers that a text may name.

        A speaker whose whole name is given comes before others who share a part of it: beside many others,
        "Ann" is Ann, and not Ann Lee and Ann Berg as well.
        """
        folded = _fold(ends(text, MAX_QUERY_LENGTH))
        words = {*_NAME.findall(folded)}
        found = {number for number in self._present(self._unspaced) if self._parts(number)[0] in folded}
        for word in words:
            same = self._present(self._by_part.get(word, ()))
            matches = same or [
                number for first in self._longer(word) for number in self._present(self._by_first[first])
            ]
            given = words if same else words | {*self._longer(word)}
            whole = [number for number in matches if given.issuperset(self._parts(number))]
            longest = max((len(self._parts(number)) for number in whole), default=0)
            found.update(number for number in whole if len(self._parts(number)) == longest)
            found.update(() if whole else matches)
        return sorted(found)

    def _parts(self, number: int) -> tuple[str, ...]:
        return _name_parts(self._names[number])

    def _present(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if self._names[number]]

    def _longer(self, word: str) -> list[str]:
        """Return the first names that a word may be a short form of."""
        if len(word) < _MIN_SHORT_NAME:
            return []
        start = bisect_left(self._firsts, word)
        return [*takewhile(lambda first: first.startswith(word), islice(self._firsts, start, None))]
