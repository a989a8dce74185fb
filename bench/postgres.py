"""What does a PostgreSQL server cost, with many clients and with many namespaces?

The server is a real one on this machine, with its own durability: each commit waits for the disk. Clients are
processes of their own and take as much of the machine as the server, so the figures are those of two cores
for all of them. Run it alone with `python -m bench.postgres [--full]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count, cycle
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from bench import corpus, filled, postgres_peers
from bench.both import AGENT
from bench.clients import Clients, Order
from bench.corpus import Prepared
from bench.measure import Report, Work, in_turn, shown
from omoide import Entry, Filter, RecallRequest, Scope, WriteRequest, open_store
from omoide.embedders import HashEmbedder
from omoide.errors import StoreFailed
from omoide.stores import AsyncStore, Document, Query
from omoide.testing import PostgresServer

CLIENTS = (1, 4, 16)
MEMORIES = 100_000
PER_SESSION = 1_000
SECONDS = 1.5

NAMESPACES = (10, 100, 1_000, 10_000)
SESSIONS = 10_000
"""How many there are, in however many namespaces: each is as large, so that the work is the same."""
CALLS = 150
WARM = 20
"""Calls before those that count, so that statements are prepared."""
FLAT = 1.5

SMALL = 2_000


def run(report: Report, *, full: bool) -> None:
    """All tables of the server; with `full`, longer and beside others."""
    try:
        server = PostgresServer()
    except StoreFailed as error:
        report.title("PostgreSQL")
        print(f"  does not run here: {error}")
        return
    with server:
        price(report, server.url)
        many_namespaces(report, server.url, together=2 if full else 1)
        many_clients(report, server.url, seconds=6 * SECONDS if full else SECONDS)
        if full:
            postgres_peers.run(report, server.url)


# One client beside a file


def price(report: Report, url: str) -> None:
    """The same on a server and in a file, one call after the other, both safe from power failures."""
    report.title(f"the price of a server: {SMALL:,} memories, power-safe")
    with TemporaryDirectory(prefix="omoide-bench-") as folder, ExitStack() as stack:
        embedder = Prepared(HashEmbedder())
        items = [*corpus.items(2 * SMALL)]
        asked = [text for _, text in corpus.questions(items[:SMALL], SMALL)]
        embedder.prepare([*(item.text for item in items), *asked])
        stores = {
            "SQLite": open_store(f"sqlite:///{Path(folder) / 'm.db'}", embedder=embedder, durability="power"),
            "PostgreSQL": open_store(f"{url}?schema=price&pool=2", embedder=embedder),
        }
        for store in stores.values():
            stack.enter_context(store)
        each = {name: _imported(store, items[:SMALL]) for name, store in stores.items()}
        _beside(report, "import", each)
        works: dict[str, Callable[[AsyncStore], Work]] = {
            "add one": lambda store: _adding(store, items[SMALL:]),
            "recall of 5 in a session": lambda store: _asking(store, asked),
            "newest 10 of a type": lambda store: _newest(store, corpus.TYPES),
            "newest 10": lambda store: _newest(store, (None,)),
        }
        for name, work in works.items():
            pair = {kind: work(store) for kind, store in stores.items()}
            in_turn(pair, WARM)
            _beside(report, name, in_turn(pair, CALLS))


def _beside(report: Report, what: str, got: dict[str, float]) -> None:
    for kind, ns in got.items():
        report.row(f"{what}, {kind}", ns, f"{ns / got['SQLite']:.1f}× the file")


def _imported(store: AsyncStore, items: Sequence[corpus.Item]) -> float:
    start = perf_counter_ns()
    for at in range(0, len(items), 500):
        store.sync.write_many([_request("default", f"s{at // 500}", item) for item in items[at : at + 500]])
    return (perf_counter_ns() - start) / len(items)


def _adding(store: AsyncStore, items: Sequence[corpus.Item]) -> Work:
    rest = cycle(items)
    return lambda: store.sync.write(_request("default", "s0", next(rest)))


def _asking(store: AsyncStore, asked: Sequence[str]) -> Work:
    rest = cycle(asked)
    return lambda: store.sync.recall(_question("default", "s1", next(rest)))


def _newest(store: AsyncStore, types: Sequence[str | None]) -> Work:
    rest = cycle(types)
    return lambda: store.sync.query(_latest("default", None, next(rest)))


# Many namespaces


def many_namespaces(report: Report, url: str, *, together: int) -> None:
    """What a call costs when the same memories lie in few namespaces, and when they lie in many."""
    items = [*corpus.items(SESSIONS * together)]
    report.title(f"{len(items):,} memories in {NAMESPACES[0]} to {NAMESPACES[-1]:,} namespaces")
    embedder = Prepared(HashEmbedder())
    with ExitStack() as stack:
        spread = {}
        for parts in NAMESPACES:
            address = filled.fill(url, f"spread_{parts}", _spread(items, parts, together))
            store = stack.enter_context(open_store(address, embedder=embedder))
            spread[str(parts)] = _Spread(store, parts, embedder)
        # Who owns what is looked up once: the first call in a namespace has one more question to ask.
        first = in_turn({parts: one.newest_of_type for parts, one in spread.items()}, CALLS)
        report.row("newest 10 of a type, first in a namespace", first[str(NAMESPACES[0])], _then(first))
        for one in spread.values():
            one.settle()
        for name, call in _CALLS.items():
            works = {parts: partial(call, one) for parts, one in spread.items()}
            in_turn(works, WARM)
            _flat(report, name, in_turn(works, CALLS))


def _flat(report: Report, what: str, got: dict[str, float]) -> None:
    few = got[str(NAMESPACES[0])]
    report.row(what, few, _then(got))
    report.goal(f"{what}: the slowest, of {NAMESPACES[0]}", max(got.values()) / few, FLAT, at_most=True)


def _then(got: dict[str, float]) -> str:
    return "then " + ", ".join(shown(ns) for ns in [*got.values()][1:])


def _spread(items: Sequence[corpus.Item], parts: int, together: int) -> Iterator[WriteRequest]:
    for number, item in enumerate(items):
        yield _request(*_session(number // together, parts), item)


def _session(number: int, parts: int) -> tuple[str, str]:
    """The namespace and the name of a session."""
    return f"n{number % parts}", f"s{number}"


class _Spread:
    """A store whose memories lie in so many namespaces; each call is about another session, from anywhere."""

    def __init__(self, store: AsyncStore, parts: int, embedder: Prepared) -> None:
        self.store, self.parts = store.sync, parts
        items = [*corpus.items(1_000, start=1_000_000)]
        asked = [text for _, text in corpus.questions(items, 500)]
        embedder.prepare([*(item.text for item in items), *asked])
        self._items, self._asked = cycle(items), cycle(asked)
        self._numbers = count()

    def _next(self) -> tuple[str, str]:
        self._last = _session(next(self._numbers) * 7_919 % SESSIONS, self.parts)
        return self._last

    def settle(self) -> None:
        """Go once to where the calls will be, as a program has that runs for a while."""
        self._numbers = count()
        for _ in range((CALLS + WARM) * len(_CALLS)):
            self.newest_of_type()
        self._numbers = count()

    def add(self) -> object:
        """Keep one more."""
        return self.store.write(_request(*self._next(), next(self._items)))

    def recall(self) -> object:
        """Five of a session that was not asked about before."""
        return self.store.recall(_question(*self._next(), next(self._asked)))

    def recall_again(self) -> object:
        """Five of the session that was asked about last."""
        return self.store.recall(_question(*self._last, next(self._asked)))

    def newest_of_type(self) -> object:
        """The newest of a type in a session."""
        return self.store.query(_latest(*self._next(), "fact"))

    def newest(self) -> object:
        """The newest in a session."""
        return self.store.query(_latest(*self._next(), None))

    def changes(self) -> object:
        """A change of a namespace."""
        return self.store.changes(self._next()[0], limit=1)

    def save(self) -> object:
        """A new document."""
        namespace, session = self._next()
        return self.store.save(Document(kind="note", id=session, namespace=namespace, body={"n": 1}))

    def claim(self) -> object:
        """The lease of a document."""
        namespace, session = self._next()
        return self.store.claim("note", session, Scope(namespace=namespace), owner="bench", ttl_ms=60_000)


_CALLS: dict[str, Callable[[_Spread], object]] = {
    "newest 10 of a type": _Spread.newest_of_type,
    "newest 10": _Spread.newest,
    "add": _Spread.add,
    "first recall in a session": _Spread.recall,
    "recall in it again": _Spread.recall_again,
    "changes": _Spread.changes,
    "save a document": _Spread.save,
    "claim a document": _Spread.claim,
}


# Many clients


def many_clients(report: Report, url: str, *, seconds: float) -> None:
    """Calls per second of 1, 4 and 16 clients over 100,000 memories."""
    address = filled.fill(url, "clients", _shared())
    with Clients(address, max(CLIENTS)) as clients:
        for verb, what in (
            ("add", "add"),
            ("recall", f"recall in {PER_SESSION:,}"),
            ("both", f"add, then recall in {PER_SESSION:,}"),
        ):
            report.title(f"{what}: clients of a server with {MEMORIES:,} memories, {seconds:g} s each")
            for where, namespace in (("in one namespace", _one), ("in one each", _own)):
                _measured(report, clients, verb, where, namespace, seconds)
        what = f"recall over {MEMORIES:,}"
        report.title(f"{what}: clients of a server, {seconds:g} s each")
        _measured(report, clients, "wide", "in one namespace", _one, seconds)


def _measured(
    report: Report,
    clients: Clients,
    verb: str,
    where: str,
    namespace: Callable[[int], str],
    seconds: float,
) -> None:
    known = 0
    for some in CLIENTS:
        orders = [Order(verb, namespace(n), f"s{n}", 0) for n in range(some)]
        first = [told.taken[0] for told in clients.run(orders)]
        if verb != "add":
            fresh = first[known:]
            report.row(f"the first, {_so_many(some)} {where}", median(fresh), f"at once {len(fresh)} of them")
        known = some
        start = perf_counter_ns()
        for order in orders:
            order.seconds = seconds
        taken = [ns for told in clients.run(orders) for ns in told.taken]
        whole = (perf_counter_ns() - start) / 1e9
        parts = quantiles(taken, n=100)
        rate = f"{len(taken) / whole:,.0f} a second, 99 of 100 within {shown(parts[98])}"
        report.row(f"{_so_many(some)} {where}", parts[49], rate)


def _so_many(some: int) -> str:
    return "1 client" if some == 1 else f"{some} clients"


def _one(number: int) -> str:
    return "shared"


def _own(number: int) -> str:
    return f"own{number}"


def _shared() -> Iterable[WriteRequest]:
    for number, item in enumerate(corpus.items(MEMORIES)):
        yield _request("shared", f"s{number // PER_SESSION}", item)
    for number in range(max(CLIENTS)):
        for item in corpus.items(PER_SESSION, start=MEMORIES + number * PER_SESSION):
            yield _request(_own(number), f"s{number}", item)


# What is asked


def _request(namespace: str, session: str, item: corpus.Item) -> WriteRequest:
    entry = Entry(namespace=namespace, agent_id=AGENT, session_id=session, content=item.text, type=item.type)
    return WriteRequest(entry=entry)


def _question(namespace: str, session: str, text: str) -> RecallRequest:
    return RecallRequest(
        namespace=namespace, agent_id=AGENT, session_id=session, scope="session", query=text, limit=5
    )


def _latest(namespace: str, session: str | None, type_: str | None) -> Query:
    scope = Scope(namespace=namespace, agent_id=AGENT, session_id=session)
    return Query(scope=scope, filter=Filter(types=(type_,)) if type_ else Filter(), limit=10)


if __name__ == "__main__":
    run(Report(), full="--full" in sys.argv[1:])
