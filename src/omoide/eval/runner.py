"""Metrics, run, report.

Each figure says, for one question, how well the things that answer it stand in what was found; the figures of
many questions are averaged with each question counting the same.

Each conversation is written into a namespace of its own, every turn as one entry, and each question is
recalled there. Only what every user of a store has is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil, log2
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from omoide.core.entry import Entry, MessageRef, Scope
from omoide.core.requests import RecallRequest, WriteRequest
from omoide.errors import Invalid
from omoide.eval import datasets
from omoide.eval.datasets import Dataset, DatasetConversation, DatasetQuestion, session_positions
from omoide.stores.factory import open_store
from omoide.stores.redaction import mask_url

# metrics: How good is a ranking?


METRICS = ("R@5", "R@10", "R@20", "hit@10", "all@5", "all@10", "nDCG@10", "MRR")

Metrics = Mapping[str, float]


def measure(ranked: Sequence[str], gold: Iterable[str]) -> dict[str, float]:
    """The figures of one question, each from 0 to 1; `ranked` is what was found, best first, each once."""
    wanted = frozenset(gold)
    ranks = [rank for rank, found in enumerate(ranked, 1) if found in wanted]
    within = {k: sum(rank <= k for rank in ranks) for k in (5, 10, 20)}
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(len(wanted), 10) + 1))
    return {
        **{f"R@{k}": within[k] / len(wanted) for k in within},
        "hit@10": float(within[10] > 0),
        "all@5": float(within[5] == len(wanted)),
        "all@10": float(within[10] == len(wanted)),
        "nDCG@10": sum(1 / log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
        "MRR": 1 / ranks[0] if ranks else 0.0,
    }


def average_metrics(metrics: Sequence[Metrics]) -> dict[str, float]:
    """The mean of each figure over questions, in per cent."""
    return {name: round(100 * sum(given[name] for given in metrics) / len(metrics), 2) for name in METRICS}


def first_occurrences(ranked: Iterable[str | None]) -> list[str]:
    """Each name once, where it comes first: a session stands where its best turn does."""
    return list(dict.fromkeys(name for name in ranked if name is not None))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]


# running: What does a store find?


AGENT_ID = "reader"
QUESTION_DELAY_MS = 3_600_000
SESSION_LIMIT = 200
"""How many turns are looked at to rank the sessions: the first 20 may well come from three of them."""
BATCH_SIZE = 500

EvalProgress = Callable[[str, int, int], None]
"""Is told what is being done, how many are done, and of how many."""


class QuestionResult(NamedTuple):
    """What was found for one question, and how good that was, by turns and by sessions."""

    conversation: str
    question: DatasetQuestion
    found: tuple[str, ...]
    turn: dict[str, float]
    session: dict[str, float] | None
    latency_ms: float


def write_turns(data: Dataset, core: Any, progress: EvalProgress) -> float:
    """Write all turns into a store and give the seconds it took."""
    began = perf_counter()
    total = sum(len(conversation.turns) for conversation in data.conversations)
    done = 0
    for conversation in data.conversations:
        requests = [WriteRequest(entry=entry) for entry in to_entries(conversation)]
        for start in range(0, len(requests), BATCH_SIZE):
            done += len(core.write_many(requests[start : start + BATCH_SIZE]))
            progress("writing turns", done, total)
    return perf_counter() - began


def to_entries(conversation: DatasetConversation) -> Iterator[Entry]:
    """The entries that the turns of a conversation are written as."""
    for turn, place in zip(conversation.turns, session_positions(conversation.turns), strict=True):
        message = None
        if turn.session is not None:
            message = MessageRef(thread=turn.session, seq=place, role=turn.role, speaker=turn.speaker)
        times: dict[str, Any] = {} if turn.at is None else {"created_at": turn.at, "occurred_at": turn.at}
        yield Entry(
            id=turn.id,
            agent_id=AGENT_ID,
            namespace=conversation.id,
            content=turn.text,
            message=message,
            **times,
        )


def ask_questions(data: Dataset, core: Any, limit: int, progress: EvalProgress) -> list[QuestionResult]:
    """Ask all questions."""
    asked = [(talk, question) for talk in data.conversations for question in talk.questions]
    answers = []
    for done, (talk, question) in enumerate(asked, 1):
        answers.append(_run_question(talk, question, core, limit))
        progress("asking questions", done, len(asked))
    return answers


def _run_question(
    conversation: DatasetConversation, question: DatasetQuestion, core: Any, limit: int
) -> QuestionResult:
    request = _recall_request(conversation, question, limit)
    began = perf_counter()
    result = core.recall(request)
    latency = (perf_counter() - began) * 1000
    found = tuple(entry.id for entry in result.entries)
    return QuestionResult(
        conversation=conversation.id,
        question=question,
        found=found,
        turn=measure(found, question.evidence),
        session=_session_metrics(conversation, question, core),
        latency_ms=latency,
    )


def _recall_request(
    conversation: DatasetConversation, question: DatasetQuestion, limit: int
) -> RecallRequest:
    at = question.at
    if at is None and any(turn.at is not None for turn in conversation.turns):
        at = max(turn.at for turn in conversation.turns if turn.at is not None) + QUESTION_DELAY_MS
    when = {} if at is None else {"at": at}
    scope = Scope(namespace=conversation.id, agent_id=AGENT_ID)
    return RecallRequest.for_scope(scope, question.text, limit=limit, **when)


def _session_metrics(
    conversation: DatasetConversation, question: DatasetQuestion, core: Any
) -> dict[str, float] | None:
    sessions = {turn.id: turn.session for turn in conversation.turns if turn.session is not None}
    gold = {sessions[ref] for ref in question.evidence if ref in sessions}
    if len(set(sessions.values())) < 2 or not gold:
        return None
    found = core.recall(_recall_request(conversation, question, SESSION_LIMIT)).entries
    return measure(first_occurrences(sessions.get(entry.id) for entry in found), gold)


# report: What is told about an evaluation?


_ANSWERABLE_CATEGORIES = {"1", "2", "3", "4"}
"""The categories of LoCoMo whose questions have an answer; those of 5 only look as if they had."""

MetricGroups = dict[str, dict[str, float]]


def summarize(answers: Sequence[QuestionResult]) -> dict[str, Any]:
    """The figures by turns and by sessions, for all questions and for each category, and the latency."""
    times = [answer.latency_ms for answer in answers]
    return {
        "turn": _group_metrics([(answer.question.category, answer.turn) for answer in answers]),
        "session": _group_metrics(
            [(answer.question.category, answer.session) for answer in answers if answer.session is not None]
        ),
        "latency_ms": {"median": round(median(times), 3), "p95": round(percentile(times, 0.95), 3)},
    }


def _group_metrics(measured: Sequence[tuple[str, Metrics]]) -> MetricGroups:
    if not measured:
        return {}
    categories = sorted({category for category, _ in measured})
    by_name: dict[str, list[Metrics]] = {}
    if answerable := [figures for category, figures in measured if category in _ANSWERABLE_CATEGORIES]:
        by_name["cat1-4"] = answerable
    by_name["all"] = [figures for _, figures in measured]
    for name in categories:
        by_name[name] = [figures for category, figures in measured if category == name]
    return {name: average_metrics(figures) | {"questions": len(figures)} for name, figures in by_name.items()}


def format_table(report: Mapping[str, Any]) -> str:
    """A report as text."""
    settings = report["settings"]
    lines = [
        f"{settings['data']}: {settings['conversations']} conversations, {settings['turns']} turns, "
        f"{settings['questions']} questions ({settings['skipped']} without evidence left out)",
        f"embedder {settings['embedder'] or 'none'}, store {settings['store']}",
        "",
        _format_row("", ["n", *METRICS]),
    ]
    for level in ("turn", "session"):
        for name, figures in report[level].items():
            cells = [str(figures["questions"]), *(f"{figures[metric]:.1f}" for metric in METRICS)]
            lines.append(_format_row(f"{level} {name}", cells))
    latency = report["latency_ms"]
    lines += [
        "",
        f"recall {latency['median']:.2f} ms median, {latency['p95']:.2f} ms p95; "
        f"{settings['turns'] / max(report['write_seconds'], 1e-9):,.0f} turns written a second",
    ]
    return "\n".join(lines)


def _format_row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<14}" + "".join(f"{cell:>9}" for cell in cells)


def to_json(report: Mapping[str, Any]) -> str:
    """A report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def to_jsonl(answers: Sequence[QuestionResult]) -> str:
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


# evaluation: How well does a store recall a data set?


LOADERS = {"locomo": datasets.load_locomo, "jsonl": datasets.load_jsonl}
TEMPORARY_STORE = "a temporary file"


def ignore_progress(task: str, done: int, total: int) -> None:
    """Say nothing about progress."""


def evaluate(
    form: str,
    path: str | Path,
    *,
    store: str | None = None,
    embedder: Any = "auto",
    limit: int = 20,
    conversations: int | None = None,
    questions: int | None = None,
    progress: EvalProgress = ignore_progress,
) -> tuple[dict[str, Any], list[QuestionResult]]:
    """The report about a data file (`locomo` or `jsonl`), and what was found for each question.

    Without a `store` a temporary file is used. `conversations` and `questions` keep only the first ones.
    """
    if form not in LOADERS:
        raise Invalid("form", f"is {form!r}", f"use one of {', '.join(LOADERS)}")
    if limit < 20:
        raise Invalid("limit", f"is {limit}", "pass 20 or more, for R@20 looks that far")
    data = datasets.truncate_dataset(LOADERS[form](Path(path)), conversations, questions)
    if not any(conversation.questions for conversation in data.conversations):
        raise Invalid(Path(path).name, "holds no question with evidence", "add questions that name turns")
    with open_core(store, embedder) as core:
        seconds = write_turns(data, core, progress)
        answers = ask_questions(data, core, limit, progress)
        name = core.stats(Scope(namespace=data.conversations[0].id)).embedder
    settings = {
        "data": data.name,
        "conversations": len(data.conversations),
        "turns": sum(len(conversation.turns) for conversation in data.conversations),
        "questions": len(answers),
        "skipped": data.skipped,
        "embedder": name,
        "store": mask_url(store) if store else TEMPORARY_STORE,
        "limit": limit,
    }
    return summarize(answers) | {"write_seconds": round(seconds, 3), "settings": settings}, answers


@contextmanager
def open_core(store: str | None, embedder: Any) -> Iterator[Any]:
    """The synchronous core of a store that is closed again, and removed if it was temporary."""
    with TemporaryDirectory(prefix="omoide-eval-") as folder:
        url = store or f"sqlite:///{Path(folder).absolute().as_posix()}/eval.db"
        core = open_store(url, embedder=embedder).sync
        try:
            yield core
        finally:
            core.close()
