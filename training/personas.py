"""Convert personas from the form in which they are written to `data/personas.jsonl`.

    python -m training.personas FILE... > training/data/personas.jsonl

A file has one persona after another, a line each for its name (`##`), a fact (`F:`), an assistant's answer
(`A:`), a newer statement that replaces the fact above (`N:`), a question that the fact above answers (`Q:`),
one that several answer (`M: 2,5 | ...`, counted from 1) and one that nothing answers (`U:`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

FACTS = ("F", "A", "N")


def read_personas(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the personas as records.

    Raises:
        ValueError: A line has no known mark, or stands where it means nothing.
    """
    persona: dict[str, Any] | None = None
    replaced: int | None = None
    for number, line in enumerate(lines, 1):
        mark, _, text = line.strip().partition(" ")
        if not mark:
            continue
        if mark == "##":
            if persona:
                yield persona
            persona, replaced = {"id": text.strip(), "facts": [], "questions": []}, None
            continue
        if persona is None or not mark.endswith(":"):
            raise ValueError(f"line {number}: {line.strip()[:60]!r} has no mark")
        facts, questions = persona["facts"], persona["questions"]
        mark, text = mark[:-1], text.strip()
        if mark in FACTS:
            facts.append(text)
            replaced = len(facts) - 1 if mark == "N" else None
        elif mark == "Q" and facts:
            question = {"q": text, "gold": [len(facts)], "type": "update" if replaced else "single"}
            questions.append(question | ({"old": [replaced]} if replaced else {}))
        elif mark == "U":
            questions.append({"q": text, "gold": [], "type": "unanswerable"})
        elif mark == "M" and "|" in text:
            numbers, text = text.split("|", 1)
            gold = [int(one) for one in numbers.split(",")]
            if not all(1 <= one <= len(facts) for one in gold):
                raise ValueError(f"line {number}: fact {numbers.strip()} does not exist")
            questions.append({"q": text.strip(), "gold": gold, "type": "multi"})
        else:
            raise ValueError(f"line {number}: mark {mark!r} means nothing here")
    if persona:
        yield persona


def main() -> None:
    """Convert the files of the command line."""
    seen: set[str] = set()
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            for persona in read_personas(lines):
                if persona["id"] in seen:
                    persona["id"] += f"-{len(seen)}"
                seen.add(persona["id"])
                print(json.dumps(persona, ensure_ascii=False))


if __name__ == "__main__":
    main()
