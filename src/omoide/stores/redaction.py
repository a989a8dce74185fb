"""Keep secrets out of stores and passwords out of logs.

A guard sees every entry before it is written. `refuse_secrets` rejects entries that contain a key, a token or
a password; `mask_secrets` replaces the secret and stores the rest. Patterns can be added, and any function
can be a guard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import thaw
from omoide.errors import Invalid, Refused

Guard = Callable[[Entry], Entry]
"""Receives each entry before it is written and returns the entry to store, or raises `Refused`."""


_RUN = re.compile(r"\S+")
_USER = re.compile(r"://[^\s/:@]*:")


def mask_url(url: str) -> str:
    """Return a URL, or a text with URLs in it, with its password masked."""
    return _RUN.sub(_mask_run, url) if "@" in url else url


def _mask_run(run: re.Match[str]) -> str:
    before, _, after = run.group().rpartition("@")  # a password may contain this sign, too
    user = _USER.search(before)
    return run.group() if user is None else f"{before[: user.end()]}***@{after}"


_IDS = ("id", "namespace", "user_id", "agent_id", "session_id", "project_id", "superseded_by")
_CARD = "a card number"

MASK = "[{name} removed]"

_WORD = r"[A-Za-z0-9_\-]"

# Each takes time in proportion to the text: what has no upper limit is read once, from where it begins.
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
        "an AWS key": r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}\b",
        "a GitHub token": rf"\b(?:gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_{_WORD}{{40,}})",
        "a Slack token": r"\bxox[abeprs]-[A-Za-z0-9\-]{10,}",
        "a Google key": rf"\bAIza{_WORD}{{35}}",
        "a Stripe key": r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",
        "an API key": rf"\bsk-(?:ant-|proj-|or-)?{_WORD}{{20,}}",
        # The lookahead reads what follows the first part once, not again from each "eyJ" in it.
        "a JSON web token": rf"(?<!{_WORD})(?={_WORD}*+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{8}})"
        rf"{_WORD}*?\beyJ{_WORD}{{8,}}+\.eyJ{_WORD}++\.{_WORD}++",
        "a bearer token": r"(?i)\bauthorization\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+"
        r"[A-Za-z0-9._~+/\-]{8,}=*",
        "a password in a URL": r"(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]{0,20}://[^\s/:@]{1,200}:[^\s/@]{1,200}@",
        "a password": r"(?i)\b(?:password|passwd|passphrase|pwd|secret|api[_\- ]?key"
        r"|access[_\- ]?token|client[_\- ]?secret)"
        r"\b[\"']?\s*(?:[:=]|\bis\b)\s*[\"']?(?=[^\s\"']{0,100}[0-9!@#$%^&*])[^\s\"',;]{6,}",
        _CARD: r"\b(?:\d[ \-]?){13,19}\b",
    }
)


def refuse_secrets(extra_patterns: Mapping[str, str] | None = None) -> Guard:
    """Return a guard that raises `Refused` for entries with a secret; the error names what was found.

    Args:
        extra_patterns: Further regular expressions by the name that errors use for them.
    """
    patterns = _compile_patterns(extra_patterns)

    def guard(entry: Entry) -> Entry:
        _check_ids(entry, patterns)
        for field, text in _texts(entry):
            _check(field, text, patterns)
        return entry

    return guard


def mask_secrets(extra_patterns: Mapping[str, str] | None = None) -> Guard:
    """Return a guard that replaces secrets in entries and keeps the rest.

    It raises `Refused` for a secret in an id.

    Args:
        extra_patterns: Further regular expressions by the name that masks use for them.
    """
    patterns = _compile_patterns(extra_patterns)

    def clean(text: str) -> str:
        for name, pattern in patterns.items():
            text = pattern.sub(lambda match, name=name: _mask_match(name, match), text)  # type: ignore[misc]
        return text

    def guard(entry: Entry) -> Entry:
        _check_ids(entry, patterns)
        if all(clean(text) == text for _, text in _texts(entry)):
            return entry
        return entry.replace(
            content=clean(entry.content),
            key=None if entry.key is None else clean(entry.key),
            rationale=None if entry.rationale is None else clean(entry.rationale),
            tags=tuple(clean(tag) for tag in entry.tags),
            metadata=_clean_data(thaw(entry.metadata), clean),
            evidence=tuple(_clean_evidence(evidence, clean) for evidence in entry.evidence),
            message=_clean_message(entry.message, clean),
        )

    return guard


_SECRET_KEY = re.compile(
    r"(?:^|_)(?:password|passwd|pwd|passphrase|passcode|secret|token|jwt|bearer|otp|pin|credential|o?auth"
    r"|authorization|cookie|(?:api|access|secret|private|signing|encryption|ssh)_?key)s?$"
)
_TOKEN_COUNT_WORDS = frozenset(
    ("max", "min", "num", "input", "output", "total", "prompt", "completion", "reserve", "used")
)
_WORD_BREAKS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


_COMPILED_PATTERNS = {name: re.compile(pattern, re.DOTALL) for name, pattern in PATTERNS.items()}


def is_secret_key(key: str) -> bool:
    """Return True if a key names a secret, such as `api_key`."""
    words = _WORD_BREAKS.sub("_", key).lower()
    *others, last = words.split("_")
    is_token_count = last in ("token", "tokens") and not _TOKEN_COUNT_WORDS.isdisjoint(others)
    return _SECRET_KEY.search(words) is not None and not is_token_count


def is_secret(key: str, value: str | int | float) -> bool:
    """Return True if a value under a key is, or contains, a secret."""
    text = f"{key}: {value}"
    return is_secret_key(key) or any(
        _matches(name, pattern, text) for name, pattern in _COMPILED_PATTERNS.items()
    )


GUARDS: Mapping[str, Any] = MappingProxyType({"refuse": refuse_secrets, "mask": mask_secrets})


def _compile_patterns(extra_patterns: Mapping[str, str] | None) -> dict[str, re.Pattern[str]]:
    patterns = {}
    for name, pattern in {**PATTERNS, **(extra_patterns or {})}.items():
        try:
            patterns[name] = re.compile(pattern, re.DOTALL)
        except re.error as error:
            raise Invalid(
                f"pattern for {name!r}", f"is no regular expression ({error})", "correct it"
            ) from error
    return patterns


def _check(field: str, text: str, patterns: Mapping[str, re.Pattern[str]]) -> None:
    found = [name for name, pattern in patterns.items() if _matches(name, pattern, text)]
    if found:
        raise Refused(field, found)


def _check_ids(entry: Entry, patterns: Mapping[str, re.Pattern[str]]) -> None:
    """Raise `Refused` for a secret in an id, which cannot be masked: several ids would become one."""
    # Ids are often long numbers, one in ten of which has the check digit of a card.
    patterns = {name: pattern for name, pattern in patterns.items() if name != _CARD}
    for field in _IDS:
        if (id := getattr(entry, field)) is not None:
            _check(field, id, patterns)
    if entry.message is not None:
        _check("message.thread", entry.message.thread, patterns)


def _matches(name: str, pattern: re.Pattern[str], text: str) -> bool:
    return any(_is_valid_match(name, match) for match in pattern.finditer(text))


def _mask_match(name: str, match: re.Match[str]) -> str:
    return MASK.format(name=name) if _is_valid_match(name, match) else match.group()


def _is_valid_match(name: str, match: re.Match[str]) -> bool:
    """Return False for long numbers that fail the check digit of card numbers."""
    if name != _CARD:
        return True
    digits = [int(letter) for letter in match.group() if letter.isdigit()]
    doubled = [digit if at % 2 == 0 else sum(divmod(2 * digit, 10)) for at, digit in enumerate(digits[::-1])]
    return sum(doubled) % 10 == 0 and len({*digits}) > 1


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "content", entry.content
    if entry.key is not None:
        yield "key", entry.key
    if entry.rationale is not None:
        yield "rationale", entry.rationale
    if entry.message is not None and entry.message.speaker is not None:
        yield "message.speaker", entry.message.speaker
    for index, tag in enumerate(entry.tags):
        yield f"tags[{index}]", tag
    for index, evidence in enumerate(entry.evidence):
        yield f"evidence[{index}].ref", evidence.ref
        if evidence.quote is not None:
            yield f"evidence[{index}].quote", evidence.quote
    if entry.metadata:
        yield from _nested_texts(thaw(entry.metadata), "metadata")


def _nested_texts(data: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield f"{path}.{key}", f"{key}: {value}" if isinstance(value, (str, int, float)) else str(key)
            if not isinstance(value, (str, int, float)):
                yield from _nested_texts(value, f"{path}.{key}")
    elif isinstance(data, (list, tuple, set, frozenset)):
        for index, value in enumerate(data):
            yield from _nested_texts(value, f"{path}[{index}]")


def _clean_data(data: Any, clean: Any) -> Any:
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        return {clean(key): _clean_value(key, value, clean) for key, value in data.items()}
    if isinstance(data, list):
        return [_clean_data(value, clean) for value in data]
    if isinstance(data, (set, frozenset)):
        return {_clean_data(value, clean) for value in data}
    return data


def _clean_value(key: str, value: Any, clean: Any) -> Any:
    """Mask a value as a whole if its key says that it is a secret."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        pair, alone = f"{key}: {value}", clean(str(value))
        if clean(pair) == pair:
            return value
        return alone if alone != str(value) else clean(pair)
    return _clean_data(value, clean)


def _clean_message(message: MessageRef | None, clean: Any) -> MessageRef | None:
    if message is None or message.speaker is None:
        return message
    return message.replace(speaker=clean(message.speaker))


def _clean_evidence(evidence: Evidence, clean: Any) -> Evidence:
    quote = None if evidence.quote is None else clean(evidence.quote)
    return evidence.replace(ref=clean(evidence.ref), quote=quote)
