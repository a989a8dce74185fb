"""Do the lists of a namespace agree with its entries?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from omoide.core.entry import Entry
from omoide.retrieval import features
from omoide.stores import indexing, rules, standing
from omoide.stores.redis import packing
from omoide.stores.redis.connections import Ask, Connections
from omoide.stores.redis.keys import SEPARATOR, Keys, dimensions, parted
from omoide.stores.redis.known import portions
from omoide.stores.redis.packing import Row
from omoide.stores.reference_state import marked
from omoide.stores.standing import LIVE

_PORTION = 200
_ENOUGH = 20


def check(server: Connections, keys: Keys, namespace: str) -> list[str]:
    """What is wrong with a namespace: parts that do not agree; empty when it is sound."""
    problems: list[str] = []
    for problem in _problems(server, keys):
        problems.append(f"namespace {namespace!r}: {problem}")
        if len(problems) >= _ENOUGH:
            break
    return problems


def _problems(server: Connections, keys: Keys) -> Iterator[str]:
    told = server.read(
        [
            ["ZRANGE", keys("time", "*"), "0", "-1"],
            *([name, keys(key)] for name, key in (("HLEN", "rows"), ("HLEN", "found"))),
            ["HGET", keys("meta"), "horizon"],
        ]
    )
    members, rows, found, horizon = told
    if not len(members) == rows == found:
        yield f"{rows} entries, {len(members)} in the list of all, {found} with terms"
    for at in range(0, len(members), _PORTION):
        some = [member[packing.STAMP :].decode() for member in members[at : at + _PORTION]]
        yield from _check_some(server, keys, some, int(horizon or -1))
    yield from _check_links(server, keys)


def _check_some(server: Connections, keys: Keys, ids: Sequence[str], horizon: int) -> Iterator[str]:
    raws, founds = server.read([["HMGET", keys("rows"), *ids], ["HMGET", keys("found"), *ids]])
    rows: dict[str, Row] = {}
    for id, raw, found in zip(ids, raws, founds, strict=True):
        try:
            rows[id] = packing.row(raw, id)
            model, said = packing.found(found)
        except (msgspec.MsgspecError, TypeError, ValueError):
            yield f"entry {id!r} is missing or cannot be read"
            rows.pop(id, None)
            continue
        yield from _check_found(id, rows[id], model, said)
    asks = {id: _asks(keys, id, row) for id, row in rows.items()}
    answers = iter(server.read([ask for some in asks.values() for ask in some])) if asks else iter(())
    for id, some in asks.items():
        yield from _check_one(id, rows[id], [next(answers) for _ in some], horizon)


def _check_found(id: str, row: Row, model: str, found: indexing.Indexed) -> Iterator[str]:
    entry = _entry(row)
    if features.read(indexing.text_of(entry)).to_bytes() != found.features:
        yield f"entry {id!r}: its terms are not those of its text"
    if (model or None) != (row.model or None) or bool(model) != (found.pooled is not None):
        yield f"entry {id!r}: its vector is not the one that it should have"


def _entry(row: Row) -> Entry:
    return marked(row.version, stale=bool(row.flips) and row.flips[-1].stale)


def _asks(keys: Keys, id: str, row: Row) -> list[Ask]:
    entry = _entry(row)
    no = packing.digits(row.no)
    older = [no + b"%d" % rev for rev in range(row.first, entry.rev)]
    return [
        ["HMGET", keys("past"), *(older or [b"-"])],
        ["HGET", keys("same"), rules.content_key(entry)],
        *(["ZSCORE", keys("time", name), no + id.encode()] for name in dimensions(entry)),
        *(["ZSCORE", keys("all", name), id] for name in dimensions(entry)),
        *(["ZSCORE", keys("on", premise), id] for premise in sorted(standing.premises(entry))),
    ]


def _check_one(id: str, row: Row, answers: list[Any], horizon: int) -> Iterator[str]:
    entry = _entry(row)
    past, same, *scores = answers
    if entry.rev > row.first and None in past:
        yield f"entry {id!r}: a version is missing"
    if same is None or id not in same[packing.STAMP :].decode().split(SEPARATOR):
        yield f"entry {id!r}: it is not known by what it says"
    lists = len(dimensions(entry))
    times, counted, resting = scores[:lists], scores[lists : 2 * lists], scores[2 * lists :]
    if any(score is None or int(float(score)) != rules.time_of(entry) for score in times):
        yield f"entry {id!r}: it is not in the lists by time"
    swept = entry.expires_at is not None and entry.expires_at <= horizon
    if standing.of(entry) != LIVE and any(score is not None for score in counted):
        yield f"entry {id!r}: it does not count, and is in the lists that recall looks at"
    if standing.of(entry) == LIVE and not swept and None in counted:
        yield f"entry {id!r}: it is not in the lists that recall looks at"
    if any(score is None or float(score) != 1 for score in resting):
        yield f"entry {id!r}: what it rests on is not noted as it says"


def _check_links(server: Connections, keys: Keys) -> Iterator[str]:
    (fields,) = server.read([["HKEYS", keys("links")]])
    for some in portions(fields):
        asks: list[Ask] = []
        for field in some:
            source, target, _ = parted(field, 3)
            for end in (source, target):
                asks += [["SISMEMBER", keys("ends", end), field], ["HEXISTS", keys("rows"), end]]
        told = server.read(asks)
        for at, field in enumerate(some):
            if not all(told[4 * at : 4 * at + 4]):
                source, target, relation = parted(field, 3)
                yield f"link {source!r} {relation} {target!r}: an end does not exist or does not know it"
