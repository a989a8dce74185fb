"""What is told about an evaluation?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from omoide.eval.metrics import METRICS, Figures, average, percentile
from omoide.eval.running import Answer

_ANSWERABLE = {"1", "2", "3", "4"}
"""The categories of LoCoMo whose questions have an answer; those of 5 only look as if they had."""

Groups = dict[str, dict[str, float]]


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """The figures by turns and by sessions, for all questions and for each category, and the latency."""
    times = [answer.latency_ms for answer in answers]
    return {
        "turn": _groups([(answer.question.category, answer.turn) for answer in answers]),
        "session": _groups(
            [(answer.question.category, answer.session) for answer in answers if answer.session is not None]
        ),
        "latency_ms": {"median": round(median(times), 3), "p95": round(percentile(times, 0.95), 3)},
    }


def _groups(measured: Sequence[tuple[str, Figures]]) -> Groups:
    if not measured:
        return {}
    categories = sorted({category for category, _ in measured})
    by_name: dict[str, list[Figures]] = {}
    if answerable := [figures for category, figures in measured if category in _ANSWERABLE]:
        by_name["cat1-4"] = answerable
    by_name["all"] = [figures for _, figures in measured]
    for name in categories:
        by_name[name] = [figures for category, figures in measured if category == name]
    return {name: average(figures) | {"questions": len(figures)} for name, figures in by_name.items()}


def table(report: Mapping[str, Any]) -> str:
    """A report as text."""
    settings = report["settings"]
    lines = [
        f"{settings['data']}: {settings['conversations']} conversations, {settings['turns']} turns, "
        f"{settings['questions']} questions ({settings['skipped']} without evidence left out)",
        f"embedder {settings['embedder'] or 'none'}, store {settings['store']}",
        "",
        _line("", ["n", *METRICS]),
    ]
    for level in ("turn", "session"):
        for name, figures in report[level].items():
            cells = [str(figures["questions"]), *(f"{figures[metric]:.1f}" for metric in METRICS)]
            lines.append(_line(f"{level} {name}", cells))
    latency = report["latency_ms"]
    lines += [
        "",
        f"recall {latency['median']:.2f} ms median, {latency['p95']:.2f} ms p95; "
        f"{settings['turns'] / max(report['write_seconds'], 1e-9):,.0f} turns written a second",
    ]
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<14}" + "".join(f"{cell:>9}" for cell in cells)


def encoded(report: Mapping[str, Any]) -> str:
    """A report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def details(answers: Sequence[Answer]) -> str:
    """What was found for each question, one JSON object a line."""
    lines = (
        {
            "conversation": answer.conversation,
            "question": answer.question.text,
            "category": answer.question.category,
            "evidence": answer.question.evidence,
            "found": answer.found,
            "latency_ms": round(answer.latency_ms, 3),
        }
        for answer in answers
    )
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
