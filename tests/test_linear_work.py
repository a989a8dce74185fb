"""The work on a text grows no faster than the text.

Work is counted, not timed: see `support.work`. Each function of text that comes from outside is called with a
text of some length, and with one four times as long. No part of it, such as one regular expression, may then
do much more than four times the work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from random import Random
from typing import Any

import pytest
from tests.support.work import CountingPattern, Meter, counted, sample

EXAMPLES = int(os.environ.get("OMOIDE_EXAMPLES", "30")) // 15
"""Random texts for each function, and as many of `TEXTS`."""
LENGTH = 400
GROWTH = 6.0
"""Growth of the work with four times the text that is still linear; quadratic work grows by 16."""
SMALL = 20
"""Steps per character that are not worth looking at."""

WORST = ("pwd:", "May 2 ", "://a:", "Ab ", "Ann's ", "?", "```json{", "aaa.", "1", "max_")
"""Repeated, each of them once made some function take quadratic time."""
TEXTS = (
    "secret=", "password is ", "-----BEGIN PRIVATE KEY-----", "a:", "eyJaaaaaaaa.", "-eyJaaaaaaaa", "a", "\n",
    "a.", ". ", "'", '"', "(", "[", "<", "```", "a1", "aA", "Ann and Bob ", "日", "é", "used to ", "before ",
    "work was ", "did a ", "January ", "the first half of ", "last ", "2 days ", "1,", "v1.", "a@", "C++ ",
    "_", "-", "\\u0041", '"""', "<a:", "?a ", "{", "{ ", "# ", "- ", "    x", "> ", "maybe a ", "1 ", "'" * 3,
    "the cause of a ", "we decided to ", "\t", "\u200b", "\ud800", "%41", "bearer ", "authorization: ", "4 ",
    "sk-", "1-", "'a", "a'", "=", "$", "x ", "and ", "://", "://a@", "_token", "Ab\n\n", "。", " ",
)  # fmt: skip


@pytest.fixture(scope="module")
def meter() -> Iterator[Meter]:
    with counted() as meter:
        yield meter


def load(name: str) -> Any:
    """Return `module:name` of the counted copy of Omoide."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"omoide.{module}"), attribute)


Function = Callable[[str], object]


def plain(name: str) -> Callable[[], Function]:
    return lambda: load(name)


def guard(name: str) -> Callable[[], Function]:
    def make() -> Function:
        made, new = load(f"stores.redaction:{name}")(), load("core.entry:Entry").new
        return lambda text: made(new(agent_id="a", content=f"x{text}"))

    return make


def parse_query() -> Function:
    parse = load("retrieval.queries:parse_query")
    return lambda text: parse(text, now=0, speakers=("Ann", "Bob Smith", "安娜"))


def recall() -> Function:
    store = load("stores.factory:open_store")("memory://", embedder="none")
    scope, blocking = load("core.entry:Scope")(agent_id="a"), import_module("omoide.blocking")
    for number in range(3):
        blocking.remember(store, f"note {number}", scope)
    return lambda text: blocking.recall(store, f"x{text}", scope)


def named_in() -> Function:
    return load("retrieval.queries:SpeakerNames")(["Ann", "Bob Smith", "安娜"]).named_in  # type: ignore[no-any-return]


def intervals() -> Function:
    parse = load("retrieval.times:intervals")
    return lambda text: parse(text, 1_780_000_000_000)


def extract() -> Function:
    extract = load("promotion.extraction:extract")
    return lambda text: extract(text, role="user", thread="t", seq=0, agent_id="a", at=0)


def summarize() -> Function:
    message, summarize = load("shortterm.memory:BufferMessage"), load("shortterm.summary:summarize_messages")

    def call(text: str) -> object:
        return summarize([message(role="user", content=f"x{text}", token_count=1)], 200)

    return call


def fit_memories() -> Function:
    hit, entry = load("core.entry:Hit"), load("core.entry:Entry")
    why, fit, count = (
        load("core.entry:Why"),
        load("turns.prompt:fit_memories"),
        load("retrieval.text:estimate_tokens"),
    )

    def call(text: str) -> object:
        one = entry.new(agent_id="a", content=f"x{text}", created_at=0)
        return fit([hit(entry=one, score=1.0, rank=1, why=why())], 30, count)

    return call


def truncate() -> Function:
    truncate, count = load("turns.prompt:truncate"), load("retrieval.text:estimate_tokens")
    return lambda text: truncate(text, 10, count)


def from_yaml() -> Function:
    read = load("turns.spec:AgentSpec").from_yaml
    return lambda text: read(f"id: a\ninstructions: {text}")


def sparql() -> Function:
    check = load("graph.sparql:check_query")
    return lambda text: check(f"SELECT ?a {{ {text} }}")


def nquads() -> Function:
    write, entry = load("graph.serializer:to_nquads"), load("core.entry:Entry")
    return lambda text: write(
        entry.new(agent_id=f"a{text}"[:100], content=f"x{text}", created_at=0, tags=[f"x{text}"])
    )


def id_of() -> Function:
    id_of = load("graph.vocabulary:id_of")
    return lambda text: id_of(f"urn:x:{text}", "urn:x:")


def first_value(name: str) -> Callable[[], Function]:
    def make() -> Function:
        function = load(name)
        return lambda text: function([f"a={text}"])

    return make


def documents() -> Function:
    read, split = load("documents.formats:read_document"), load("documents.passages:split")

    def call(text: str) -> None:
        for name in ("a.md", "a.txt"):
            split(read(f"x{text}".encode(errors="replace"), name=name))

    return call


FUNCTIONS: Mapping[str, Callable[[], Function]] = {
    "intervals": intervals,
    "documents": documents,
    "parse_query": parse_query,
    "named_in": named_in,
    "recall": recall,
    "tense_of": plain("retrieval.queries:tense_of"),
    "words": plain("retrieval.text:words"),
    "terms": plain("retrieval.text:terms"),
    "query_terms": plain("retrieval.text:query_terms"),
    "extract_features": plain("retrieval.text:extract_features"),
    "chunks": plain("retrieval.text:chunks"),
    "estimate_tokens": plain("retrieval.text:estimate_tokens"),
    "refuse_secrets": guard("refuse_secrets"),
    "mask_secrets": guard("mask_secrets"),
    "is_secret": lambda: lambda text: load("stores.redaction:is_secret")("note", text),
    "is_secret_key": lambda: lambda text: load("stores.redaction:is_secret_key")(f"{text}_token"),
    "mask_url": plain("stores.redaction:mask_url"),
    "sentences": plain("shortterm.summary:sentences"),
    "summarize_messages": summarize,
    "extract": extract,
    "quote": plain("turns.prompt:quote"),
    "truncate": truncate,
    "fit_memories": fit_memories,
    "find_json_object": plain("turns.spec:_find_json_object"),
    "from_yaml": from_yaml,
    "result_text": plain("turns.tools:result_text"),
    "check_query": sparql,
    "to_nquads": nquads,
    "id_of": id_of,
    "check_iri": plain("graph.terms:check_iri"),
    "percent_encode": plain("graph.vocabulary:percent_encode"),
    "check_id": plain("ids:check"),
    "parse_bindings": first_value("cli.transfer:parse_bindings"),
    "to_snake_case": plain("integrations.mcp.arguments:to_snake_case"),
    "sanitize_text": plain("cli.shell:sanitize_text"),
    "parse_past_time": lambda: lambda text: load("cli.shell:parse_past_time")(text, 0, "--since"),
    "parse_value": plain("cli.transfer:parse_value"),
    "string_literal": plain("graph.serializer:string_literal"),
    "quote_string": plain("graph.terms:quote_string"),
    "parse_decimal": plain("graph.terms:_parse_decimal"),
    "parse_datetime": plain("graph.terms:_parse_datetime"),
    "quote_text": plain("longterm.lineage:quote_text"),
    "escape_invisible": plain("turns.prompt:escape_invisible"),
    "entry": lambda: lambda text: load("core.entry:Entry").new(agent_id="a", content=text, key=text),
    "mcp_arguments": lambda: load("integrations.mcp.arguments:_text_list"),
}


def growth(meter: Meter, call: Function, text: str) -> tuple[float, str]:
    """Return by how much the work grows at most, and where."""
    found = []
    works = []
    for length in (LENGTH, 4 * LENGTH):
        long = (text * (length // len(text) + 1))[:length]
        meter.measure(lambda long=long: call(long))  # type: ignore[misc]
        works.append(dict(meter.by_source))
    for source, work in works[1].items():
        if work > SMALL * 4 * LENGTH:
            found.append((work / max(works[0].get(source, 0), SMALL * LENGTH / 4), source))
    return max(found, default=(0.0, ""))


def test_the_meter_finds_quadratic_work(meter: Meter) -> None:
    """A pattern that reads a run again from each of its characters, and one that reads it once."""
    pattern = CountingPattern(re.compile("a+b"), meter)
    assert growth(meter, pattern.search, "a")[0] > 12
    assert growth(meter, CountingPattern(re.compile("a++c|a"), meter).match, "a")[0] < GROWTH


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_work_grows_no_faster_than_the_text(name: str, meter: Meter) -> None:
    """Neither on texts that are hostile to one of the patterns, nor on random parts of what they look for."""
    meter.expected = (load("errors:OmoideError"), ValueError)
    call = FUNCTIONS[name]()
    random = Random(name)
    call_texts = [*WORST, *random.sample(TEXTS, min(EXAMPLES, len(TEXTS)))]
    patterns = sorted(meter.patterns)
    for _ in range(EXAMPLES):
        pieces = [sample(*random.choice(patterns), random) for _ in range(random.randint(1, 2))]
        piece = "".join(pieces)[:80]
        call_texts.append(piece[random.randint(0, len(piece) // 2) :] or "a")
    worse = [
        f"{text!r} × 4 is {by:.1f} × the work in {source}"
        for text in call_texts
        for by, source in [growth(meter, call, text)]
        if by >= GROWTH
    ]
    assert not worse
