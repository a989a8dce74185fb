"""Run an evaluation: metrics, recall, report.

The metrics of one question say how well the turns that answer it are ranked; over many questions they are
averaged with equal weight. Each conversation is written into a namespace of its own, every turn as one entry,
and each question is recalled there through the public store API.
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

from omoide.core.entry import Entry, MessageRef, RecallFields, RecallRequest, Scope, WriteRequest
from omoide.errors import Invalid
from omoide.eval import datasets
from omoide.eval.datasets import Dataset, DatasetConversation, DatasetQuestion, session_positions
from omoide.stores.factory import open_store
from omoide.stores.redaction import mask_url

METRICS = ("R@5", "R@10", "R@20", "hit@10", "all@5", "all@10", "nDCG@10", "MRR")

Metrics = Mapping[str, float]


def measure(ranked: Sequence[str], gold: Iterable[str]) -> dict[str, float]:
    """Return the metrics of one question, each from 0 to 1.

    Args:
        ranked: The ids found, best first, each once.
        gold: The ids that answer the question.
    """
    relevant = frozenset(gold)
    ranks = [rank for rank, id in enumerate(ranked, 1) if id in relevant]
    hits = {k: sum(rank <= k for rank in ranks) for k in (5, 10, 20)}
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(len(relevant), 10) + 1))
    return {
        **{f"R@{k}": hits[k] / len(relevant) for k in hits},
        "hit@10": float(hits[10] > 0),
        "all@5": float(hits[5] == len(relevant)),
        "all@10": float(hits[10] == len(relevant)),
        "nDCG@10": sum(1 / log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
        "MRR": 1 / ranks[0] if ranks else 0.0,
    }


def average_metrics(metrics: Sequence[Metrics]) -> dict[str, float]:
    """Return the mean of each metric over questions, in per cent."""
    return {name: round(100 * sum(item[name] for item in metrics) / len(metrics), 2) for name in METRICS}


def first_occurrences(ranked: Iterable[str | None]) -> list[str]:
    """Return each name once, at its first rank: a session ranks where its best turn does."""
    return list(dict.fromkeys(name for name in ranked if name is not None))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]


AGENT_ID = "reader"
QUESTION_DELAY_MS = 3_600_000
SESSION_LIMIT = 200
"""Turns recalled to rank sessions; the first 20 may come from as few as three of them."""
BATCH_SIZE = 500

EvalProgress = Callable[[str, int, int], None]
"""Called with the current task, the number of items done, and their total."""


class QuestionResult(NamedTuple):
    """The ids recalled for one question, with its metrics by turns and by sessions."""

    conversation: str
    question: DatasetQuestion
    found: tuple[str, ...]
    turn: dict[str, float]
    session: dict[str, float] | None
    latency_ms: float


def write_turns(data: Dataset, core: Any, progress: EvalProgress) -> float:
    """Write all turns into a store and return the seconds it took."""
    started = perf_counter()
    total = sum(len(conversation.turns) for conversation in data.conversations)
    done = 0
    for conversation in data.conversations:
        requests = [WriteRequest(entry=entry) for entry in to_entries(conversation)]
        for start in range(0, len(requests), BATCH_SIZE):
            done += len(core.write_many(requests[start : start + BATCH_SIZE]))
            progress("writing turns", done, total)
    return perf_counter() - started


def to_entries(conversation: DatasetConversation) -> Iterator[Entry]:
    """Yield the entries for the turns of a conversation."""
    for turn, position in zip(conversation.turns, session_positions(conversation.turns), strict=True):
        message = None
        if turn.session is not None:
            message = MessageRef(thread=turn.session, seq=position, role=turn.role, speaker=turn.speaker)
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
    """Recall every question and return the results."""
    questions = [
        (conversation, question) for conversation in data.conversations for question in conversation.questions
    ]
    answers = []
    for done, (conversation, question) in enumerate(questions, 1):
        answers.append(_run_question(conversation, question, core, limit))
        progress("asking questions", done, len(questions))
    return answers


def _run_question(
    conversation: DatasetConversation, question: DatasetQuestion, core: Any, limit: int
) -> QuestionResult:
    request = _recall_request(conversation, question, limit)
    started = perf_counter()
    result = core.recall(request)
    latency = (perf_counter() - started) * 1000
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
    when: RecallFields = {} if at is None else {"at": at}
    scope = Scope(namespace=conversation.id, agent_id=AGENT_ID)
    return RecallRequest.for_scope(scope, question.text, limit=limit, **when)


def _session_metrics(
    conversation: DatasetConversation, question: DatasetQuestion, core: Any
) -> dict[str, float] | None:
    sessions = {turn.id: turn.session for turn in conversation.turns if turn.session is not None}
    gold = {sessions[ref] for ref in question.evidence if ref in sessions}
    if len(set(sessions.values())) < 2 or not gold:
        return None
    entries = core.recall(_recall_request(conversation, question, SESSION_LIMIT)).entries
    return measure(first_occurrences(sessions.get(entry.id) for entry in entries), gold)


_ANSWERABLE_CATEGORIES = {"1", "2", "3", "4"}
"""The categories of LoCoMo whose questions have an answer; those of category 5 are adversarial."""

MetricGroups = dict[str, dict[str, float]]


def summarize(answers: Sequence[QuestionResult]) -> dict[str, Any]:
    """Return the metrics by turns and by sessions, overall and per category, and the latency."""
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
    """Format a report as a text table."""
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
    """Encode a report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def to_jsonl(answers: Sequence[QuestionResult]) -> str:
    """Encode the results as JSON lines, one question each."""
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


LOADERS = {"locomo": datasets.load_locomo, "jsonl": datasets.load_jsonl}
TEMPORARY_STORE = "a temporary file"


def ignore_progress(task: str, done: int, total: int) -> None:
    """Discard progress."""


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
    """Evaluate recall on a data file.

    Args:
        form: The format of the file, `locomo` or `jsonl`.
        path: The data file.
        store: The URL of a store; a temporary SQLite file if left out.
        embedder: What `open_store` takes as an embedder.
        limit: Entries to recall per question, at least 20.
        conversations: Use only the first so many conversations.
        questions: Ask only the first so many questions of each conversation.
        progress: Called while turns are written and questions asked.

    Returns:
        The report, and the result of each question.

    Raises:
        Invalid: The format is unknown, the limit too small, or no question has evidence.
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
    """Open the synchronous core of a store, and close it afterwards; a temporary one is removed."""
    with TemporaryDirectory(prefix="omoide-eval-") as folder:
        url = store or f"sqlite:///{Path(folder).absolute().as_posix()}/eval.db"
        core = open_store(url, embedder=embedder).sync
        try:
            yield core
        finally:
            core.close()
