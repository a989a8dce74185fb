"""Measure how much of a conversation is still found beside many others in the same scope, and how fast.

`python -m bench.large_scope LOCOMO.json --crowd DIALOGUES.jsonl --crowd FACTS.jsonl` asks the questions of
some conversations twice: each conversation in a scope of its own, and all of them in one scope together with
50,000 entries of other conversations. The others come from JSON lines: conversations with `sessions`, or
facts with `text`; they are repeated with other speakers, threads and times until there are enough. For each
question the entries that answer it are looked for among the candidates as well, which tells what the
retrievers missed from what the ranking put too low. Times are those of a recall without the encoder, for each
distinct text is encoded once and its vectors are kept in a file: by the clock, and of the processor, which a
busy machine changes less.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import Any

import msgspec
import numpy as np

from omoide import Entry, RecallRequest, Scope, WriteRequest, open_store
from omoide.core.entry import MessageRef
from omoide.embedders import Embedder, Embedding, choose
from omoide.embedders.protocol import TOKEN_SIZE
from omoide.eval import datasets, runner
from omoide.retrieval.queries import parse_query
from omoide.stores.recall import EncodedQuery

SIZE = 50_000
SEED = 20110311
CACHE = Path(".cache/large_scope.db")
ALONE, TOGETHER = "alone", "crowd"
START, SPAN = 1_640_995_200_000, 3 * 365 * 86_400_000
"""The crowd talks in the years 2022 to 2024, as the conversations that are asked about do."""

_FIRST_NAMES = """
    Ada Agnes Akira Alba Alma Amara Anders Anton Arthur Astrid Aurora Bela Bianca Boris Bruno Camille Carl
    Caroline Cecilia Chiara Clara Conor Dana Daria David Dieter Dora Edgar Elena Elif Emil Emma Erik Esther
    Fatima Felix Fiona Flora Frida Gemma Georg Gianni Greta Hana Hannah Hugo Ida Ingrid Irene Isaac Ivan
    Jamal James Jana Joanna John Jonas Judith Julia Kai Karim Kenji Klara Lars Laura Leila Leon Lina Luca
    Lucy Magda Maria Marta Matteo Maya Melanie Mia Milan Mira Nadia Naomi Nate Nils Nina Noah Nora Olga
    Oliver Omar Oscar Paul Petra Pia Priya Rahul Rita Robert Rosa Ruth Sam Samir Sara Selma Silvia Simon
    Sofia Stella Tara Theo Thomas Tim Tomas Ursula Uwe Vera Viktor Wanda Yara Yusuf Zoe
"""
_LAST_NAMES = """
    Abe Adler Bauer Berg Blanc Costa Diaz Dunn Evans Ferro Fischer Garcia Haas Hill Ito Jansen Kaya Keller
    Khan Kim Koch Lang Lee Lopez Mann Meyer Moreau Nagy Novak Okafor Olsen Park Patel Quinn Reyes Rossi
    Roth Sato Silva Singh Sousa Stein Tanaka Urban Varga Weber Wolf Yang Young Zimmer
"""

HEADINGS = ("R@10 cat1-4", "all", "proposed", "candidates", "median ms", "p95", "CPU ms", "CPU p95")

Turn = tuple[str, str | None, str | None]
"""Text, role, speaker."""


class Session(msgspec.Struct):
    """Turns that follow one another, or a single fact."""

    turns: list[Turn]
    is_message: bool


class CachedEmbedder:
    """An embedder that keeps the vectors of every text in a file."""

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self.name, self.dim = embedder.name, embedder.dim
        self._embedder = embedder
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS vectors (model TEXT, text TEXT, pooled BLOB, tokens BLOB, words TEXT,"
            " PRIMARY KEY (model, text)) WITHOUT ROWID"
        )
        self._known: dict[str, Embedding] = {}

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order."""
        for text in texts:
            if text not in self._known and (found := self._read(text)) is not None:
                self._known[text] = found
        missing = [*dict.fromkeys(text for text in texts if text not in self._known)]
        for start in range(0, len(missing), 256):
            batch = missing[start : start + 256]
            self._write(dict(zip(batch, self._embedder.embed(batch, query=query), strict=True)))
        return [self._known[text] for text in texts]

    def _read(self, text: str) -> Embedding | None:
        row = self._db.execute(
            "SELECT pooled, tokens, words FROM vectors WHERE model=? AND text=?", (self.name, text)
        ).fetchone()
        if row is None:
            return None
        pooled = np.frombuffer(row[0], np.float32)
        if row[1] is None:
            return Embedding(pooled)
        tokens = np.frombuffer(row[1], np.int8).reshape(-1, TOKEN_SIZE)
        return Embedding(pooled, tokens, tuple(msgspec.json.decode(row[2])))

    def _write(self, embeddings: dict[str, Embedding]) -> None:
        self._known |= embeddings
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?,?,?,?,?)",
                [
                    (
                        self.name,
                        text,
                        made.pooled.tobytes(),
                        None if made.tokens is None else made.tokens.tobytes(),
                        msgspec.json.encode(made.words).decode(),
                    )
                    for text, made in embeddings.items()
                ],
            )


def read_sessions(path: Path) -> Iterator[Session]:
    """Yield the sessions of a file of conversations, or the facts of a file of facts."""
    for line in path.read_bytes().splitlines():
        record = msgspec.json.decode(line)
        for session in record.get("sessions", ()):
            roles = [turn["s"] if turn["s"] in ("user", "assistant") else None for turn in session["turns"]]
            yield Session(
                [
                    (turn["t"], role, None if role else f"{record['id']} {turn['s']}")
                    for turn, role in zip(session["turns"], roles, strict=True)
                ],
                is_message=True,
            )
        if "text" in record:
            yield Session([(record["text"], None, None)], is_message=False)


def crowd(sessions: Sequence[Session], size: int) -> Iterator[Entry]:
    """Yield entries of the sessions, repeated with other names and times until there are `size`."""
    return islice(_crowd(sessions), size)


def _crowd(sessions: Sequence[Session]) -> Iterator[Entry]:
    chance = Random(SEED)
    number = count()
    first_names, last_names = _FIRST_NAMES.split(), _LAST_NAMES.split()
    for copy in count():
        names: dict[str, str] = {}
        for at, session in enumerate(sessions):
            began = START + chance.randrange(SPAN)
            for seq, (text, role, speaker) in enumerate(session.turns):
                if speaker is not None and speaker not in names:
                    names[speaker] = f"{chance.choice(first_names)} {chance.choice(last_names)}"
                said = None if speaker is None else names[speaker]
                message = MessageRef(thread=f"crowd {copy} {at}", seq=seq, role=role, speaker=said)
                yield Entry(
                    id=f"crowd {next(number)}",
                    namespace=TOGETHER,
                    agent_id=runner.AGENT_ID,
                    content=text,
                    message=message if session.is_message else None,
                    created_at=began + seq * 60_000,
                    occurred_at=began + seq * 60_000,
                )


def conversation_entries(data: datasets.Dataset) -> Iterator[Entry]:
    """Yield every turn twice: in a namespace of its conversation, and in the one of all."""
    for conversation in data.conversations:
        for entry in runner.to_entries(conversation):
            message = entry.message
            assert message is not None
            yield entry
            yield entry.replace(
                id=f"{conversation.id} {entry.id}",
                namespace=TOGETHER,
                message=message.replace(thread=f"{conversation.id} {message.thread}"),
            )


def write(core: Any, entries: Iterable[Entry]) -> None:
    """Write entries in batches."""
    rest = iter(entries)
    while batch := [*islice(rest, 500)]:
        core.write_many([WriteRequest(entry=entry) for entry in batch])


class Answer(msgspec.Struct):
    """What one question found."""

    category: str
    recalled: float
    """Share of the entries that answer it among the first ten."""
    proposed: float
    """Share of them among the candidates."""
    candidates: int
    ms: float
    cpu_ms: float


def ask(core: Any, embedder: Embedder, data: datasets.Dataset, *, together: bool) -> list[Answer]:
    """Ask every question, in the scope of its conversation or in that of all."""
    answers = []
    for conversation in data.conversations:
        now = max(turn.at or 0 for turn in conversation.turns) + runner.QUESTION_DELAY_MS
        namespace, prefix = (TOGETHER, f"{conversation.id} ") if together else (conversation.id, "")
        scope = Scope(namespace=namespace, agent_id=runner.AGENT_ID)
        for question in conversation.questions:
            request = RecallRequest.for_scope(scope, question.text, limit=10, at=now)
            started, cpu_started = perf_counter(), thread_time()
            found = [entry.id for entry in core.recall(request).entries]
            cpu, taken = thread_time() - cpu_started, perf_counter() - started
            gold = {prefix + id for id in question.evidence}
            proposed = candidate_ids(core, embedder, request)
            answers.append(
                Answer(
                    question.category,
                    len(gold & {*found}) / len(gold),
                    len(gold & proposed) / len(gold),
                    len(proposed),
                    1000 * taken,
                    1000 * cpu,
                )
            )
    return answers


def candidate_ids(core: Any, embedder: Embedder, request: RecallRequest) -> set[str]:
    """Return the ids of the candidates for a request."""
    scope = request.effective_scope()

    def encode(speakers: Sequence[str]) -> EncodedQuery:
        parsed = parse_query(request.query, now=request.at, speakers=speakers)
        return EncodedQuery(parsed, embedder.embed([parsed.encoder_text], query=True)[0])

    source = core._candidate_source()
    with source.candidates(scope, request.filter, request.at, request.limit, encode) as found:
        return {entry.id for entry in found.load_entries(range(found.pool.size))}


def report(name: str, answers: Sequence[Answer]) -> None:
    """Print a line of figures."""
    answerable = [answer for answer in answers if answer.category != "5"]
    times, cpu_times = [answer.ms for answer in answers], [answer.cpu_ms for answer in answers]
    cells = [
        f"{100 * mean(answer.recalled for answer in answerable):.1f}",
        f"{100 * mean(answer.recalled for answer in answers):.1f}",
        f"{100 * mean(answer.proposed for answer in answers):.1f}",
        f"{mean(answer.candidates for answer in answers):,.0f}",
        *(f"{time:.1f}" for time in (median(times), runner.percentile(times, 0.95))),
        *(f"{time:.1f}" for time in (median(cpu_times), runner.percentile(cpu_times, 0.95))),
    ]
    print(f"{name:<8}" + "".join(f"{cell:>12}" for cell in cells))


def main() -> int:
    """Fill a store, ask, and print."""
    parser = argparse.ArgumentParser(prog="bench.large_scope", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="the file of LoCoMo")
    parser.add_argument("--crowd", type=Path, action="append", help="JSON lines of other conversations")
    parser.add_argument("--size", type=int, default=SIZE, help="entries of other conversations")
    parser.add_argument("--conversations", type=int, default=3, help="conversations that are asked about")
    parser.add_argument("--questions", type=int, help="questions of each of them")
    parser.add_argument("--embedder", default="auto")
    parser.add_argument("--cache", type=Path, default=CACHE, help="the file that keeps vectors")
    parser.add_argument("--store", type=Path, help="a file to keep the store in, filled if it is new")
    given = parser.parse_args()
    data = datasets.truncate_dataset(datasets.load_locomo(given.data), given.conversations, given.questions)
    model = choose(given.embedder)
    if model is None:
        parser.error("an embedder is needed")
    embedder = CachedEmbedder(model, given.cache)
    sessions = [session for path in given.crowd or () for session in read_sessions(path)]
    started = datetime.now(UTC)
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        path = given.store or Path(folder) / "large.db"
        is_new = not path.exists()
        with open_store(f"sqlite:///{path.absolute()}", embedder=embedder) as store:
            if is_new:
                write(store.sync, conversation_entries(data))
                write(store.sync, crowd(sessions, given.size))
            texts = len({text for session in sessions for text, _, _ in session.turns})
            print(f"{given.size:,} others of {texts:,} texts, ready in {datetime.now(UTC) - started}")
            print(" " * 8 + "".join(f"{heading:>12}" for heading in HEADINGS))
            for name in (ALONE, TOGETHER):
                report(name, ask(store.sync, embedder, data, together=name == TOGETHER))
    return 0


if __name__ == "__main__":
    sys.exit(main())
