"""How is it said why a memory was found?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from omoide.cli import moments
from omoide.cli.printing import clipped, safe
from omoide.core.recalling import Hit
from omoide.service.reasons import in_words

if TYPE_CHECKING:
    from rich.tree import Tree


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


def explained(hit: Hit, width: int) -> Tree:
    """A memory, in no more than so many characters, with the parts of its score."""
    from rich.text import Text
    from rich.tree import Tree

    content = clipped(hit.entry.content, width)
    tree = Tree(Text.assemble((f"{hit.rank}. ", "dim"), (content, "bold"), f"  {hit.score:+.2f}"))
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
