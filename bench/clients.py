"""What does one of many clients of a server do?

Each is a process of its own with a store of its own, as users run them: `python -m bench.clients ADDRESS
NUMBER`. It is told what to do in lines of JSON and answers each with a line. Texts, questions and their
vectors are made before the clock runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from time import monotonic, perf_counter_ns
from typing import NamedTuple, Self

import msgspec

from bench import corpus
from bench.both import AGENT
from bench.corpus import Prepared
from omoide import Entry, RecallRequest, WriteRequest, open_store
from omoide.embedders import HashEmbedder
from omoide.stores import AsyncStore

TEXTS = 3_000
QUESTIONS = 300


class Order(msgspec.Struct):
    """What a client is to do, in which namespace, in which session, and for how many seconds."""

    verb: str
    namespace: str
    session: str
    seconds: float


class Told(msgspec.Struct):
    """Nanoseconds of each call."""

    taken: list[int]


class Client:
    """The process of one client, as the one who starts it sees it."""

    def __init__(self, address: str, number: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.clients", address, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def tell(self, order: Order) -> None:
        """Have it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Told:
        """What it did."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client ended before its time")
        return msgspec.json.decode(line, type=Told)

    def close(self) -> None:
        """Have it end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


class Clients:
    """So many clients of one store, all ready to begin."""

    def __init__(self, address: str, count: int) -> None:
        self._all = [Client(address, number) for number in range(count)]
        for client in self._all:
            client.hear()  # it is ready

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._all:
            client.close()

    def run(self, orders: Sequence[Order]) -> list[Told]:
        """What the first clients did, one order for each, all at the same time."""
        told = [*zip(self._all, orders, strict=False)]
        for client, order in told:
            client.tell(order)
        return [client.hear() for client, _ in told]


class _Work(NamedTuple):
    store: AsyncStore
    texts: list[str]
    questions: list[str]

    def calls(self, order: Order) -> Callable[[], object]:
        """One more call each time it is called."""
        sync, texts, questions = self.store.sync, cycle(self.texts), cycle(self.questions)

        def add() -> object:
            entry = Entry(
                namespace=order.namespace, agent_id=AGENT, session_id=order.session, content=next(texts)
            )
            return sync.write(WriteRequest(entry=entry))

        def recall() -> object:
            where = None if order.verb == "wide" else order.session
            return sync.recall(
                RecallRequest(
                    namespace=order.namespace,
                    agent_id=AGENT,
                    session_id=where,
                    scope="agent" if where is None else "session",
                    query=next(questions),
                    limit=5,
                )
            )

        def both() -> object:
            return add(), recall()

        return {"add": add, "recall": recall, "wide": recall, "both": both}[order.verb]


def _main(address: str, number: int) -> None:
    embedder = Prepared(HashEmbedder())
    items = [*corpus.items(TEXTS, start=10_000_000 + number * TEXTS)]
    texts = [item.text for item in items]
    questions = [text for _, text in corpus.questions(items, QUESTIONS)]
    embedder.prepare([*texts, *questions])
    with open_store(address, embedder=embedder) as store:
        work = _Work(store, texts, questions)
        _say([])
        for line in sys.stdin.buffer:
            order = msgspec.json.decode(line, type=Order)
            _say(_taken(work.calls(order), order.seconds))


def _taken(call: Callable[[], object], seconds: float) -> list[int]:
    """Nanoseconds of each call until the time is over; at least one, and only one without any time."""
    taken = []
    end = monotonic() + seconds
    while True:
        start = perf_counter_ns()
        call()
        taken.append(perf_counter_ns() - start)
        if monotonic() >= end:
            return taken


def _say(taken: list[int]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(Told(taken)) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
