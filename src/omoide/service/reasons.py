"""Describe the parts of a recall score in plain words."""

from __future__ import annotations

from omoide.core.entry import Why

PART_DESCRIPTIONS = {
    "vector": "close in meaning",
    "centered": "close in meaning, beyond what all memories share",
    "cosine": "close in meaning",
    "match": "its words are close in meaning",
    "wide": "close in meaning, with what stands right around it",
    "tokens": "close in meaning, word by word",
    "context": "close in meaning, word by word, with what was said around it",
    "before": "answers a question like this one",
    "words": "has words of the question",
    "share": "shares its words",
    "own": "has words of the question",
    "window": "has words of the question, itself or right around it",
    "cover": "has the words of the question, with what was said around it",
    "episode": "its conversation fits",
    "crowd": "more of its conversation fits better",
    "speaker": "said by the person asked about",
    "first_person": "said by that person about themselves",
    "elsewhere": "not of the person asked about",
    "date": "from the time asked about",
    "newer": "a newer hit says something else of the same subject",
    "instruction": "a standing instruction or preference",
    "kind": "tells a thing of the kind asked for",
    "asks": "is a question itself",
    "rarity": "says something particular",
    "role": "said by the side asked about",
    "reply": "what answers it fits",
    "recency": "recent",
    "confidence": "its confidence",
    "importance": "its importance",
    "reranker": "placed by the reranker",
}
"""Description of each part of a score."""

NEGATIVE_PART_DESCRIPTIONS = {
    "vector": "less close in meaning than most",
    "centered": "not close in meaning, beyond what all memories share",
    "cosine": "not close in meaning",
    "match": "its words are not close in meaning",
    "wide": "less close in meaning than most, with what stands right around it",
    "tokens": "less close in meaning than most, word by word",
    "context": "less close in meaning than most, word by word, with what was said around it",
    "before": "answers a question unlike this one",
    "own": "has fewer words of the question than most",
    "window": "has fewer words of the question than most, itself and around it",
    "cover": "has fewer words of the question than most, with what was said around it",
    "episode": "its conversation fits less",
    "rarity": "says it in common words",
    "date": "not from the time asked about",
    "newer": "a newer hit says something else of the same subject",
}
"""Descriptions of negative values, for the parts that compare an entry with others."""


def describe_part(part: str, value: float) -> str:
    """Return the description of a part of a score; a part without one is returned as it is."""
    description = PART_DESCRIPTIONS.get(part, part)
    return NEGATIVE_PART_DESCRIPTIONS.get(part, description) if value < 0 else description


def describe_why(why: Why) -> list[str]:
    """Return why a hit was found, in words, the weightiest reason first and each phrase once."""
    phrases = [
        describe_part(reason.part, reason.value) + ("" if reason.note is None else f": {reason.note}")
        for reason in why.reasons
    ]
    return [*dict.fromkeys(phrases)] or ["nothing matched: among the newest"]
