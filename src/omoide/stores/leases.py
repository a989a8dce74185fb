"""Decide who holds a lease, however wrong the clocks of other processes are.

The end of a lease is a time of its owner's clock. Others believe it only while the lease is as old as its
length or younger, counted by a clock that cannot be set, from when this process first saw it. An owner that
renews its lease changes its end, and is believed anew.
"""

from __future__ import annotations

from collections import OrderedDict

from omoide import clock
from omoide.stores.records import Lease

_MAX_OBSERVATIONS = 10_000
"""Claims of others that are remembered; one that is forgotten is waited for anew."""

_observed: OrderedDict[tuple[str, ...], tuple[object, float]] = OrderedDict()


def is_believed(place: tuple[str, ...], claim: object, ttl_ms: int) -> bool:
    """Return True until this process has seen the same claim in a place for `ttl_ms`."""
    now = clock.monotonic()
    known = _observed.get(place)
    if known is None or known[0] != claim:
        _observed[place] = known = (claim, now)
        if len(_observed) > _MAX_OBSERVATIONS:
            _observed.popitem(last=False)
    return now - known[1] < ttl_ms / 1000


def claim_lease(
    held: Lease | None, place: tuple[str, ...], owner: str, ttl_ms: int, now: int
) -> Lease | None:
    """Return the lease that an owner acquires or renews, or None while another owner holds it.

    Args:
        held: The present or last lease.
        place: The store and the document, for `is_believed`.
        owner: Who claims it.
        ttl_ms: Its length.
        now: The time by the clock of this process.
    """
    token = 0 if held is None else held.token
    if held is not None and held.until > 0:  # not released
        if held.owner == owner:
            # Nobody else had it in between, whatever the clock says. A clock that went back does not end it.
            return Lease(owner=owner, until=max(now + ttl_ms, held.until + 1), token=token, ttl=ttl_ms)
        if held.until > now and is_believed(place, (token, held.until), held.ttl):
            return None
    return Lease(owner=owner, until=now + ttl_ms, token=token + 1, ttl=ttl_ms)
