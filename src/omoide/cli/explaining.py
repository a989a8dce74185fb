"""How is it said why a memory was found?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from omoide.cli import moments
from omoide.cli.printing import safe
from omoide.core.recalling import Hit

if TYPE_CHECKING:
    from rich.tree import Tree

IN_WORDS = {
    "vector": "close in meaning",
    "wide": "close in meaning, with what stands right around it",
    "tokens": "close in meaning, word by word",
    "context": "close in meaning, word by word, with what was said around it",
    "before": "answers a question like this one",
    "words": "has words of the question",
    "own": "has words of the question",
    "window": "has words of the question, itself or right around it",
    "cover": "has the words of the question, with what was said around it",
    "episode": "its conversation fits",
    "crowd": "more of its conversation fits better",
    "speaker": "said by the person asked about",
    "told": "said by that person about themselves",
    "date": "from the time asked about",
    "kind": "tells a thing of the kind asked for",
    "asks": "is a question itself",
    "rarity": "says something particular",
    "role": "said by the side asked about",
    "reply": "what answers it fits",
    "recency": "recent",
    "confidence": "sure",
    "importance": "important",
}
"""What each part of a score says about a memory."""

LESS_IN_WORDS = {
    "vector": "less close in meaning than most",
    "wide": "less close in meaning than most, with what stands right around it",
    "tokens": "less close in meaning than most, word by word",
    "context": "less close in meaning than most, word by word, with what was said around it",
    "before": "answers a question unlike this one",
    "own": "has fewer words of the question than most",
    "window": "has fewer words of the question than most, itself and around it",
    "cover": "has fewer words of the question than most, with what was said around it",
    "episode": "its conversation fits less",
    "rarity": "says it in common words",
}
"""What those parts say below zero that compare a memory with others; the others mean what they say."""


def in_words(part: str, value: float) -> str:
    """What a part of a score says; one that has no words is called by its name."""
    said = IN_WORDS.get(part, part)
    return LESS_IN_WORDS.get(part, said) if value < 0 else said


def about(hit: Hit) -> str:
    """What a memory is, in short."""
    entry = hit.entry
    at = moments.shown(entry.created_at if entry.occurred_at is None else entry.occurred_at)
    parts = [
        entry.id,
        entry.type or "",
        at[:10],
        f"confidence {entry.confidence:g}" if entry.confidence < 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def explained(hit: Hit) -> Tree:
    """A memory with the parts of its score."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(
        Text.assemble((f"{hit.rank}. ", "dim"), (safe(hit.entry.content), "bold"), f"  {hit.score:+.2f}")
    )
    tree.add(Text(about(hit), style="dim"))
    for reason in hit.why.reasons:
        rank = "" if reason.rank is None else f", #{reason.rank}"
        note = "" if reason.note is None else f": {safe(reason.note)}"
        words = in_words(reason.part, reason.value)
        tree.add(Text(f"{reason.value:+.2f}  {words} ({reason.part}{rank}){note}"))
    if not hit.why.reasons:
        tree.add(Text("nothing matched: among the newest"))
    if hit.why.evidence:
        tree.add(Text(f"from {', '.join(map(safe, hit.why.evidence))}"))
    return tree


def put_tree(tree: Tree) -> None:
    """Print a tree, as wide as the terminal is."""
    from rich.console import Console

    terminal = sys.stdout
    Console(file=terminal, highlight=False, width=None if terminal.isatty() else 200).print(tree)
