"""A lease lasts as long as its owner asked for, however wrong the clock of its owner is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import ADA, KINDS, a_store

from omoide import clock
from omoide.errors import Conflict, Invalid
from omoide.stores import Document
from omoide.testing import FrozenClock, eventually

YEARS = 10 * 365 * 86_400_000
TTL_MS = 150


def claim(store: Any, owner: str, *, ahead: int = 0, ttl_ms: int = TTL_MS) -> Any:
    """Claim a document, by a clock that is ahead of the real one."""
    with clock.override(FrozenClock(clock.now() + ahead)):
        return store.claim("session", "d", ADA, owner=owner, ttl_ms=ttl_ms)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_of_an_owner_whose_clock_is_ahead_ends(kind: str, tmp_path: Path) -> None:
    """Counted from the first time that this process saw it; its token keeps the late owner out."""
    with a_store(kind, tmp_path) as store:
        late = claim(store, "ahead", ahead=YEARS)
        first_seen = time.monotonic()
        assert claim(store, "next") is None
        lease = await eventually(lambda: claim(store, "next"))
        assert time.monotonic() - first_seen >= TTL_MS / 1000
        assert lease.token > late.token
        assert claim(store, "ahead", ahead=YEARS).token > lease.token


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_that_is_renewed_is_believed_for_another_length(kind: str, tmp_path: Path) -> None:
    """An owner whose clock is ahead keeps what it renews; others wait for a length after it stopped."""
    with a_store(kind, tmp_path) as store:
        claim(store, "ahead", ahead=YEARS)
        started = renewed = time.monotonic()
        while renewed - started < 2 * TTL_MS / 1000:
            assert claim(store, "next") is None
            assert claim(store, "ahead", ahead=YEARS).owner == "ahead"
            renewed = time.monotonic()
        assert claim(store, "next") is None
        await eventually(lambda: claim(store, "next"))
        assert time.monotonic() - renewed >= TTL_MS / 1000


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_jump_of_the_clock_during_a_lease_does_not_end_it(kind: str, jump: int, tmp_path: Path) -> None:
    """The owner renews it under the same token, and others wait."""
    with a_store(kind, tmp_path) as store:
        first = claim(store, "owner", ttl_ms=60_000)
        renewed = claim(store, "owner", ahead=jump, ttl_ms=60_000)
        assert renewed.token == first.token
        assert claim(store, "next") is None
        assert claim(store, "owner", ttl_ms=60_000).token == first.token
        assert claim(store, "next") is None


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_is_given_back_after_a_jump_of_the_clock(kind: str, jump: int, tmp_path: Path) -> None:
    """Nobody waits for what its owner has finished."""
    with a_store(kind, tmp_path) as store:
        claim(store, "owner", ttl_ms=60_000)
        with clock.override(FrozenClock(clock.now() + jump)):
            assert store.release("session", "d", ADA, owner="owner")
        assert claim(store, "next").owner == "next"


@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_whose_clock_is_behind_is_fenced(kind: str, tmp_path: Path) -> None:
    """Others take its lease at once, because its end has passed; it sees that, and cannot write."""
    with a_store(kind, tmp_path) as store:
        document = store.save(Document(kind="session", id="d", agent_id="ada", body=1))
        behind = claim(store, "behind", ahead=-YEARS)
        lease = claim(store, "next")
        assert lease.token > behind.token
        store.save(document.replace(body=2), expected_rev=1)
        assert claim(store, "behind", ahead=-YEARS) is None
        with pytest.raises(Conflict):
            store.save(document.replace(body=3), expected_rev=1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_lease_is_longer_than_ten_minutes(kind: str, tmp_path: Path) -> None:
    """Longer ones would be renewed too rarely for others to believe in them."""
    with a_store(kind, tmp_path) as store:
        assert claim(store, "owner", ttl_ms=600_000) is not None
        with pytest.raises(Invalid, match=r"ttl_ms is 600001; use at most 600000"):
            claim(store, "owner", ttl_ms=600_001)
