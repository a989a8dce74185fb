"""Requests of a projector to a provider are neither lost nor doubled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import (
    NOW,
    QuietStrategy,
    add_entries,
    agent,
    answer,
    coverage_of,
    entries,
    errors,
    mark,
    message,
    note,
)

from omoide import Agent, Memory, Signal, Thread, action, clock, memory, receive, thread
from omoide.core.action import MEMORY_RESULT, Directive, Emit, MemoryDelete, MemoryUpsert
from omoide.errors import Invalid, WrongType
from omoide.projection import (
    MessageEmbedder,
    ProjectionContext,
    ProjectionPlugin,
    engine,
    project,
    projection_result,
)
from omoide.projection.plugins import MAX_REFUSALS
from omoide.projection.projectors import key_of
from omoide.testing import FrozenClock

EMBEDDER = MessageEmbedder()
NAME = EMBEDDER.name


def make_listener(*said: str, **parts: Any) -> Agent:
    return agent(*said, plugins=[ProjectionPlugin], strategy=QuietStrategy(), **parts)


def project_upserts(
    agent: Agent, projector: Any = EMBEDDER, now: int = NOW, **options: Any
) -> tuple[Agent, list[MemoryUpsert]]:
    agent, directives = project(agent, [projector], now=now, **options)
    assert all(isinstance(one, MemoryUpsert) for one in directives)
    return agent, [one for one in directives if isinstance(one, MemoryUpsert)]


def keys(directives: Sequence[MemoryUpsert]) -> list[str]:
    return [item["key"] for one in directives for item in one.items]


def test_messages_are_asked_to_be_put_under_their_place() -> None:
    """Each message becomes an item with a key of thread and position; other entries become none."""
    given = add_entries(make_listener("Hello", " "), [note(), message("Good bye", "assistant")])
    after, (directive,) = project_upserts(given)
    here = thread.of(given).id
    assert directive.provider == "semantic"
    assert directive.items == [
        {"key": f"{here}:0", "value": "Hello"},
        {"key": f"{here}:3", "value": "Good bye"},
    ]
    assert mark(after, NAME)["pending"] == {directive.request_id: [0, 3, NOW]}
    assert coverage_of(after, NAME) == []


def test_entries_are_covered_when_every_answer_says_so() -> None:
    """The mark moves with the last of the answers, not before."""
    given, directives = project_upserts(make_listener("a", "b", "c"), MessageEmbedder(batch_size=2))
    assert [len(one.items) for one in directives] == [2, 1]
    given, _ = answer(given, directives[1])
    assert coverage_of(given, NAME) == []
    given, told = answer(given, directives[0])
    assert coverage_of(given, NAME) == [0, 2]
    assert told == []
    assert {*mark(given, NAME)} == {"thread", "covers_seq", "at"}


def test_while_answers_are_awaited_nothing_is_asked_twice() -> None:
    """New entries wait for the answer, and are asked for after it."""
    given, (first,) = project_upserts(make_listener("a"))
    given = add_entries(given, [message("b")])
    same, none = project_upserts(given, now=NOW + 59_999)
    assert (same, none) == (given, [])
    given, _ = answer(given, first)
    _, (second,) = project_upserts(given)
    assert keys([second]) == [f"{thread.of(given).id}:1"]


def test_what_failed_is_asked_for_at_the_next_run() -> None:
    """After an error the same entries are asked for under the same keys, together with what is new."""
    given, (first,) = project_upserts(make_listener("a"))
    given, told = answer(given, first, ok=False)
    assert told == []
    assert mark(given, NAME)["failures"] == 1
    given, (again,) = project_upserts(add_entries(given, [message("b")]))
    assert keys([again]) == [*keys([first]), f"{thread.of(given).id}:1"]
    assert again.request_id != first.request_id
    given, _ = answer(given, again)
    assert coverage_of(given, NAME) == [0, 1]
    assert "failures" not in mark(given, NAME)


def test_one_failed_batch_frees_the_whole_range() -> None:
    """Where one of several answers is an error, nothing counts as covered."""
    given, directives = project_upserts(make_listener("a", "b"), MessageEmbedder(batch_size=1))
    given, _ = answer(given, directives[0], ok=False)
    given, _ = answer(given, directives[1])
    assert coverage_of(given, NAME) == []
    _, again = project_upserts(given, MessageEmbedder(batch_size=1))
    assert keys(again) == keys(directives)


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    """After `retry_ms` the same is asked under another request, and the late answer changes nothing."""
    embedder = MessageEmbedder(retry_ms=100)
    given, (lost,) = project_upserts(make_listener("a"), embedder)
    assert project_upserts(given, embedder, NOW + 99)[1] == []
    given, (again,) = project_upserts(given, embedder, NOW + 100)
    assert keys([again]) == keys([lost])
    late, _ = answer(given, lost)
    assert late is given
    given, _ = answer(given, again)
    assert coverage_of(given, NAME) == [0, 0]


def test_a_clock_that_was_set_back_does_not_stop_the_projection() -> None:
    """What seems to have been asked in the future is asked again."""
    given, _ = project_upserts(make_listener("a"))
    assert len(project_upserts(given, now=NOW - 1)[1]) == 1


def test_entries_without_messages_are_covered_at_once() -> None:
    """Where there is nothing to ask for, there is nothing to wait for."""
    given, directives = project_upserts(add_entries(make_listener(), [note(), note()]))
    assert directives == []
    assert coverage_of(given, NAME) == [0, 1]


def test_a_long_backlog_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A projector that waits for answers gets no more than so many entries at once, and then the next."""
    monkeypatch.setattr(engine, "MAX_BATCH", 2)
    given, (first,) = project_upserts(make_listener(*"abc"))
    assert len(first.items) == 2
    given, _ = answer(given, first)
    _, (second,) = project_upserts(given)
    assert keys([second]) == [f"{thread.of(given).id}:2"]


def test_a_message_that_a_provider_refuses_does_not_hold_up_the_others() -> None:
    """A key refused again and again while others were kept is passed over, and reported."""
    given = make_listener("a", "password", "b")
    bad = f"{thread.of(given).id}:1"
    told: list[Directive] = []
    for _ in range(MAX_REFUSALS):
        assert told == []
        assert coverage_of(given, NAME) == []
        given, (directive,) = project_upserts(given)
        given, told = answer(given, directive, bad)
    assert coverage_of(given, NAME) == [0, 2]
    (error,) = errors(told)
    assert (error.context, error.action, error.kind) == ("projection", NAME, "Refused")
    assert bad in error.message


def test_a_provider_that_keeps_nothing_loses_nothing() -> None:
    """While a provider refuses every key, or is too slow for some, none is passed over."""
    given = make_listener("a", "b")
    here = thread.of(given).id
    for refused, why in ((["0", "1"], "down"), (["1"], "timed out after 5 s")):
        for _ in range(2 * MAX_REFUSALS):
            given, (directive,) = project_upserts(given)
            given, told = answer(given, directive, *(f"{here}:{seq}" for seq in refused), error=why)
            assert told == []
    assert coverage_of(given, NAME) == []


def test_it_counts_what_all_batches_of_a_run_say_together() -> None:
    """A message refused in a batch of its own is passed over, where another batch was kept each time."""
    embedder = MessageEmbedder(batch_size=1)
    given = make_listener("a", "password", "key", "b")
    here = thread.of(given).id
    told: list[Directive] = []
    for _ in range(MAX_REFUSALS):
        assert told == []
        assert coverage_of(given, NAME) == []
        given, (a, bad, worse, b) = project_upserts(given, embedder)
        for directive, *refused in ((a,), (bad, f"{here}:1"), (worse, f"{here}:2"), (b,)):
            given, told = answer(given, directive, *refused)
    assert coverage_of(given, NAME) == [0, 3]
    assert f"{here}:1, {here}:2" in errors(told)[0].message


def test_the_order_of_answers_does_not_matter() -> None:
    """What one batch was refused counts, though the last answer is good or bad."""
    embedder = MessageEmbedder(batch_size=1)
    for order in ((0, 1), (1, 0)):
        given, directives = project_upserts(make_listener("password", "a"), embedder)
        here = thread.of(given).id
        for at in order:
            given, _ = answer(given, directives[at], *([] if at else [f"{here}:0"]))
        assert coverage_of(given, NAME) == []
        assert mark(given, NAME)["refused"] == {f"{here}:0": 1}


def test_only_a_run_in_which_something_was_kept_counts_as_a_refusal() -> None:
    """That others were kept once, or that a key came too late, does not count against it later."""
    given = make_listener("a", "b")
    here = thread.of(given).id
    both = (f"{here}:0", f"{here}:1")
    rounds = [(both[1:], "no"), (both, "no"), (both, "no"), (both[1:], "timed out"), (both[1:], "timed out")]
    for refused, why in rounds:
        given, (directive,) = project_upserts(given)
        given, told = answer(given, directive, *refused, error=why)
        assert told == []
    assert mark(given, NAME)["refused"] == {both[1]: 1}


def test_a_projector_that_is_not_confirmed_does_not_wait() -> None:
    """Without `confirmed`, entries are covered as soon as they were asked for."""

    class Hasty:
        name = "hasty"

        def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Any:
            return memory, [MemoryUpsert(items=[{"key": "k", "value": 1}], provider="p")]

    given, directives = project(make_listener("a"), [Hasty()], now=NOW)
    assert len(directives) == 1
    assert coverage_of(given, "hasty") == [0, 0]
    assert "pending" not in mark(given, "hasty")


def test_a_key_that_is_kept_at_last_is_not_passed_over() -> None:
    """Refusals count in a row only."""
    given = make_listener("a", "b")
    here = thread.of(given).id
    for bad in [1, 1, 0, 1, 1, 0]:
        given, (directive,) = project_upserts(given)
        given, told = answer(given, directive, f"{here}:{bad}")
        assert told == []
    assert coverage_of(given, NAME) == []


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"request_id": "req_other", "status": "ok"},
        {"request_id": 5, "status": "ok"},
        {"request_id": None},
        [1, 2],
    ],
)
def test_answers_to_others_are_left_alone(data: Any) -> None:
    """A result that no projector asked for, in whatever shape, changes nothing and is no error."""
    given, _ = project_upserts(make_listener("a"))
    assert receive(given, Signal(type=MEMORY_RESULT, data=data)) == (given, [])


@pytest.mark.parametrize("details", ["no", 5, [1], [{"key": 1}], [{}], None])
def test_an_answer_with_strange_details_is_an_error_as_a_whole(details: Any) -> None:
    """What cannot be read of an answer counts as not done."""
    given, (directive,) = project_upserts(make_listener("a"))
    data = {"request_id": directive.request_id, "status": "error", "details": details}
    given, told = receive(given, Signal(type=MEMORY_RESULT, data=data))
    assert told == []
    assert coverage_of(given, NAME) == []
    assert mark(given, NAME)["failures"] == 1


def test_an_agents_own_route_for_results_still_runs() -> None:
    """Several routes may match one signal, and the projection takes none of them away."""

    @action
    def heard(ctx: Any, request_id: str) -> dict[str, Any]:
        return {"heard": request_id}

    given, (directive,) = project_upserts(make_listener("a", routes=[(MEMORY_RESULT, heard)]))
    given, _ = answer(given, directive)
    assert given.state["heard"] == directive.request_id
    assert coverage_of(given, NAME) == [0, 0]


def test_the_action_can_be_routed_by_hand() -> None:
    """The plugin is a convenience: a route of one's own does the same."""
    given, (directive,) = project_upserts(agent("a", routes=[(MEMORY_RESULT, projection_result)]))
    given, _ = answer(given, directive)
    assert coverage_of(given, NAME) == [0, 0]


def test_two_projectors_do_not_mix_up_their_answers() -> None:
    """Each has a mark of its own under its name."""
    one, two = MessageEmbedder(name="one"), MessageEmbedder(name="two", provider="other")
    given, directives = project(make_listener("a"), [one, two], now=NOW)
    given, _ = answer(given, directives[1])
    assert (coverage_of(given, "one"), coverage_of(given, "two")) == ([], [0, 0])


def test_answers_for_an_older_thread_are_ignored() -> None:
    """When the agent has another thread, what was asked for the first one no longer counts."""
    given, (old,) = project_upserts(make_listener("a"))
    moved = thread.put(given, Thread.new(id="other").append(message("b")))
    moved, (new,) = project_upserts(moved)
    assert keys([new]) == ["other:0"]
    assert answer(moved, old)[0] is moved


def test_a_confirmed_projector_may_ask_for_anything() -> None:
    """Only what a provider answers is waited for; requests need ids of their own."""

    class Sweeping:
        name = "sweeping"
        confirmed = True

        def __init__(self, *ids: str) -> None:
            self.ids = ids

        def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Any:
            deletes = [MemoryDelete(keys=["old"], provider="p", request_id=id) for id in self.ids]
            return memory, [*deletes, Emit(signal=Signal(type="swept"))]

    given, directives = project(make_listener("a"), [Sweeping("r1", "r2")], now=NOW)
    assert {*mark(given, "sweeping")["pending"]} == {"r1", "r2"}
    assert len(directives) == 3
    _, directives = project(make_listener("a"), [Sweeping("r", "r")], now=NOW)
    assert ["request_id" in error.message for error in errors(directives)] == [True]


def test_vectors_of_ones_own_go_with_the_items() -> None:
    """With a function that embeds, each item has the vector of its text."""
    _, (directive,) = project_upserts(
        make_listener("ab"), MessageEmbedder(embed=lambda text: [len(text), 0.5])
    )
    assert directive.items[0]["embedding"] == [2.0, 0.5]


def test_only_the_beginning_of_a_very_long_message_is_put() -> None:
    """A message beyond `longest` is cut there; the thread has all of it."""
    _, (directive,) = project_upserts(make_listener("x" * 50), MessageEmbedder(max_length=10))
    assert directive.items[0]["value"] == "x" * 10


def test_a_key_fits_everywhere() -> None:
    """However long the id of a thread is, the key is no longer than ids may be, and stays the same."""
    long = "t" * 511
    assert key_of("t", 7) == "t:7"
    assert len(key_of(long, 7)) <= 512
    assert key_of(long, 7) == key_of(long, 7) != key_of("u" * 511, 7)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch_size": 0}, Invalid),
        ({"max_length": 0}, Invalid),
        ({"embed": 5}, WrongType),
        ({"provider": ""}, Invalid),
    ],
)
def test_a_wrong_setting_is_refused(options: dict[str, Any], problem: type[Exception]) -> None:
    """Batches hold something, and a function is a function."""
    with pytest.raises(problem):
        MessageEmbedder(**options)


def test_a_wrong_vector_is_the_projectors_failure() -> None:
    """An embed function that raises, or returns no numbers, is told as an Error; nothing is covered."""
    given, directives = project(make_listener("a"), [MessageEmbedder(embed=lambda text: ["x"])], now=NOW)  # type: ignore[list-item]
    assert len(errors(directives)) == 1
    assert coverage_of(given, NAME) == []


Step = st.sampled_from(["say", "run", "lose", "crash", "fail", "answer", "wait"])


@given(st.lists(Step, max_size=40), entries)
def test_whatever_is_lost_on_the_way_nothing_is_lost_or_doubled(
    steps: list[str], said: list[dict[str, Any]]
) -> None:
    """Directives that get lost, answers that do, failures, and agents put back to their last checkpoint.

    In the end the provider has each message once, under its key.
    """
    store: dict[str, Any] = {}
    embedder = MessageEmbedder(batch_size=3)
    waiting: list[MemoryUpsert] = []
    with clock.override(FrozenClock(NOW)) as time:
        given = saved = make_listener()
        for step in [*steps, *(["say"] * len(said)), "wait", "run", "answer", "wait", "run", "answer"]:
            if step == "say" and said:
                given = add_entries(given, [said.pop(0)])
                saved = thread.put(saved, thread.of(given))
            elif step == "run":
                given, directives = project_upserts(given, embedder, time.at)
                waiting += directives
            elif step == "lose":
                waiting.clear()
            elif step == "crash":
                given = saved
            elif step == "wait":
                time.advance(60_000)
                saved = given
            elif step == "fail":
                for directive in waiting:
                    given, _ = answer(given, directive, ok=False, now=time.at)
                waiting.clear()
            elif step == "answer":
                for directive in waiting:
                    store.update({item["key"]: item["value"] for item in directive.items})
                    given, told = answer(given, directive, now=time.at)
                    assert told == []
                waiting.clear()
    log = thread.of(given)
    texts = {
        f"{log.id}:{entry.seq}": entry.payload["content"]
        for entry in log.filter_by_kind("message")
        if entry.payload["content"].strip()
    }
    assert store == texts
    assert coverage_of(given, NAME) == ([0, len(log.entries) - 1] if log.entries else [])
    assert memory.of(given).space("world") is not None
