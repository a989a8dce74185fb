"""What does a store find?

Each conversation is written into a namespace of its own, every turn as one entry, and each question is
recalled there. Only what every user of a store has is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

from omoide.core.entry import Entry, MessageRef
from omoide.core.recalling import RecallRequest
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest
from omoide.eval.dataset import Conversation, DataSet, Question, positions
from omoide.eval.metrics import firsts, measure

AGENT = "reader"
AFTER_MS = 3_600_000
DEPTH = 200
"""How many turns are looked at to rank the sessions: the first 20 may well come from three of them."""
BATCH = 500

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many are done, and of how many."""


class Answer(NamedTuple):
    """What was found for one question, and how good that was, by turns and by sessions."""

    conversation: str
    question: Question
    found: tuple[str, ...]
    turn: dict[str, float]
    session: dict[str, float] | None
    latency_ms: float


def write(data: DataSet, core: Any, progress: Progress) -> float:
    """Write all turns into a store and give the seconds it took."""
    began = perf_counter()
    total = sum(len(conversation.turns) for conversation in data.conversations)
    done = 0
    for conversation in data.conversations:
        requests = [WriteRequest(entry=entry) for entry in entries(conversation)]
        for start in range(0, len(requests), BATCH):
            done += len(core.write_many(requests[start : start + BATCH]))
            progress("writing turns", done, total)
    return perf_counter() - began


def entries(conversation: Conversation) -> Iterator[Entry]:
    """The entries that the turns of a conversation are written as."""
    for turn, place in zip(conversation.turns, positions(conversation.turns), strict=True):
        message = None
        if turn.session is not None:
            message = MessageRef(thread=turn.session, seq=place, role=turn.role, speaker=turn.speaker)
        times: dict[str, Any] = {} if turn.at is None else {"created_at": turn.at, "occurred_at": turn.at}
        yield Entry(
            id=turn.id, agent_id=AGENT, namespace=conversation.id, content=turn.text, message=message, **times
        )


def ask(data: DataSet, core: Any, limit: int, progress: Progress) -> list[Answer]:
    """Ask all questions."""
    asked = [(talk, question) for talk in data.conversations for question in talk.questions]
    answers = []
    for done, (talk, question) in enumerate(asked, 1):
        answers.append(_answer(talk, question, core, limit))
        progress("asking questions", done, len(asked))
    return answers


def _answer(talk: Conversation, question: Question, core: Any, limit: int) -> Answer:
    request = _request(talk, question, limit)
    began = perf_counter()
    result = core.recall(request)
    latency = (perf_counter() - began) * 1000
    found = tuple(entry.id for entry in result.entries)
    return Answer(
        conversation=talk.id,
        question=question,
        found=found,
        turn=measure(found, question.evidence),
        session=_by_session(talk, question, core),
        latency_ms=latency,
    )


def _request(talk: Conversation, question: Question, limit: int) -> RecallRequest:
    at = question.at
    if at is None and any(turn.at is not None for turn in talk.turns):
        at = max(turn.at for turn in talk.turns if turn.at is not None) + AFTER_MS
    when = {} if at is None else {"at": at}
    scope = Scope(namespace=talk.id, agent_id=AGENT)
    return RecallRequest.within(scope, question.text, limit=limit, **when)


def _by_session(talk: Conversation, question: Question, core: Any) -> dict[str, float] | None:
    sessions = {turn.id: turn.session for turn in talk.turns if turn.session is not None}
    gold = {sessions[ref] for ref in question.evidence if ref in sessions}
    if len(set(sessions.values())) < 2 or not gold:
        return None
    found = core.recall(_request(talk, question, DEPTH)).entries
    return measure(firsts(sessions.get(entry.id) for entry in found), gold)
