"""Defaults and limits of the promotion policy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.promotion import NOW, item, plan_of, short_term, verdicts
from tests.support.sessions import a_spec, talker

from omoide import clock
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.testing import FrozenClock


def test_the_usual_policy() -> None:
    """0.6 is enough, 0.4 at the end; every 30 seconds, 20 at once, earlier when nine tenths are full."""
    policy = PromotionPolicy()
    assert policy.enabled
    assert not policy.strict
    assert (policy.threshold, policy.closing_threshold) == (0.6, 0.4)
    assert (policy.every_ms, policy.max_items, policy.capacity) == (30_000, 20, 0.9)


@pytest.mark.parametrize("trigger", ["interval", "turn", "capacity", "demand"])
def test_twenty_are_promoted_at_once(trigger: str) -> None:
    """The best of them; all that an agent decided comes on top."""
    waiting = [item(f"w{at:02}", 0.7 + at / 1_000) for at in range(25)]
    decided = [item(f"d{at}", 0.1) for at in range(3)]
    found = verdicts(plan_of(short_term(waiting=waiting, decided=decided), trigger=trigger))
    later = {id for id, verdict in found.items() if verdict == "later"}
    assert later == {f"w{at:02}" for at in range(5)}
    assert sum(verdict == "promote" for verdict in found.values()) == 23


@pytest.mark.parametrize("trigger", ["pause", "close"])
def test_at_the_end_nothing_waits_for_the_next_run(trigger: str) -> None:
    """Who leaves takes all along that is good enough."""
    found = verdicts(plan_of(short_term(waiting=[item(f"w{at}", 0.7) for at in range(25)]), trigger=trigger))
    assert {*found.values()} == {"promote"}


@pytest.mark.parametrize(("after", "trigger"), [(29_999, None), (30_000, "interval"), (90_000, "interval")])
async def test_every_thirty_seconds_it_is_time(store: Any, after: int, trigger: str | None) -> None:
    """The end of a turn promotes what waits once so much time has passed, and not before."""
    with clock.override(FrozenClock(NOW)) as now:
        async with Session.open(a_spec(memory=True), "s1", store=store, llm=talker()) as session:
            session.propose("We deploy on Fridays.", type="fact", importance=0.9)
            now.advance(after)
            await session.chat("Hello.")
            assert [run.trigger for run in session.promotions] == ([] if trigger is None else [trigger])
