"""Tests of the ranking of candidates and its explanation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from omoide.embedders import Embedding, HashEmbedder
from omoide.retrieval.pool import Array, CandidatePool, PoolRow, ScopeStatistics, neighbours_of, segments_of
from omoide.retrieval.queries import parse_query
from omoide.retrieval.ranking import (
    Center,
    FeatureWeights,
    QueryEmbedding,
    RankingWeights,
    ScoreTable,
    score,
)
from omoide.retrieval.text import extract_features

NOW = 1_700_000_000_000
EMBEDDER = HashEmbedder(64)
WORDS = ["dog", "cat", "moved", "Rome", "flat", "bakery", "two weeks ago", "because", "I", "you?", "Paris"]
TALK = [
    ("Ann", "I finally moved, the new flat is in Lisbon."),
    ("Ben", "Congratulations! How is the neighbourhood?"),
    ("Ann", "Steep, and close to the river."),
    ("Ben", "I started pottery lessons two weeks ago."),
    ("Ann", "I adopted a dog."),
    ("Ben", "What is it called?"),
    ("Ann", "Pixel. She is a whippet."),
]

texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
made = st.builds(
    lambda text, thread, seq, who, role, time: row(
        text, thread=thread, seq=seq, speaker=who, role=role, time=time
    ),
    texts,
    st.sampled_from([None, "a", "b"]),
    st.integers(0, 40),
    st.sampled_from([None, "Ann", "Ben"]),
    st.sampled_from([None, "user", "assistant"]),
    st.integers(0, NOW),
)


def row(text: str, *, embed: bool = True, **fields: Any) -> PoolRow:
    vectors = EMBEDDER.embed([text])[0].pooled.tobytes() if embed else b""
    return PoolRow(features=extract_features(text).to_bytes(), vectors=vectors, **fields)


def pool(rows: Sequence[PoolRow], **more: Any) -> CandidatePool:
    columns = [*zip(*rows, strict=True)] if rows else [()] * len(PoolRow._fields)
    held: dict[str, Any] = dict(zip(PoolRow._fields, columns, strict=True))
    return CandidatePool.build(held.pop("features"), **held, dim=64, **more)


def ask(text: str, held: CandidatePool, *, embed: bool = True, stages: int = 2) -> ScoreTable:
    read = parse_query(text, now=NOW, speakers=held.speakers)
    vector = EMBEDDER.embed([read.encoder_text])[0] if embed else None
    first_only = structs.replace(RankingWeights.default(vectors=embed, tokens=False), second=None)
    return score(read, held, vector=vector, weights=first_only if stages == 1 else None)


def talk() -> list[PoolRow]:
    return [row(text, thread="chat", seq=at, speaker=who, time=at) for at, (who, text) in enumerate(TALK)]


def close(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, atol=1e-6))


@pytest.mark.parametrize("embed", [True, False])
def test_the_right_message_leads(embed: bool) -> None:
    """The one who is named, said it, and the words fit."""
    assert ask("Where is Ann's new flat?", pool(talk()), embed=embed).top(1).tolist() == [0]


def test_an_answer_is_found_by_what_was_asked_before_it() -> None:
    """A message without a word of the question is found through its neighbours."""
    assert 6 in ask("What is Ann's dog called?", pool(talk())).top(3).tolist()


def test_parts_add_up_to_the_score() -> None:
    """An explanation leaves nothing out, and every part has its rank."""
    scored = ask("When did Ben start pottery?", pool(talk()))
    best = int(scored.top(1)[0])
    why = scored.explain(best)
    assert best == 3
    assert sum(part.score for part in why.values()) == pytest.approx(scored.total[best])
    assert all(1 <= part.rank <= len(TALK) for part in why.values())
    assert why["kind"].score > 0


def test_plain_facts_need_no_conversation() -> None:
    """Rows without thread, speaker and time are ranked by what they say."""
    facts = ["The key is under the mat.", "Trains leave at nine.", "The door code is 4711."]
    assert ask("what is the door code?", pool([row(fact) for fact in facts])).top(1).tolist() == [2]


@given(st.lists(made, max_size=12), st.lists(made, min_size=1, max_size=4), texts)
@settings(max_examples=60, deadline=None)
def test_appending_is_the_same_as_building(before: list[PoolRow], more: list[PoolRow], text: str) -> None:
    """A pool that grew scores as one that was built at once."""
    grown = pool(before)
    ask(text, grown)
    for one in more:
        grown.append(one)
    assert close(ask(text, grown).total, ask(text, pool([*before, *more])).total)


@given(st.lists(made, min_size=1, max_size=12), st.sets(st.integers(0, 11)), texts)
@settings(max_examples=60, deadline=None)
def test_a_dropped_row_leaves_nothing_behind(rows: list[PoolRow], gone: set[int], text: str) -> None:
    """A pool scores after drops as one that never had the rows; what is gone scores lowest of all."""
    held = pool(rows)
    ask(text, held)
    speakers = [*dict.fromkeys(one.speaker for at, one in enumerate(rows) if at not in gone and one.speaker)]
    for at in gone & set(range(len(rows))):
        held.drop(at)
    left = [at for at in range(len(rows)) if at not in gone]
    fresh = pool([rows[at] for at in left])
    read = parse_query(text, now=NOW, speakers=held.speakers)
    vector = EMBEDDER.embed([read.encoder_text])[0]
    total = score(read, held, vector=vector).total
    assert fresh.speakers == speakers
    again = parse_query(text, now=NOW, speakers=fresh.speakers)
    assert close(total[left], score(again, fresh, vector=vector).total)
    assert all(np.isneginf(total[at]) for at in gone if at < len(rows))


@given(
    st.lists(made, min_size=2, max_size=12, unique_by=lambda one: (one.thread, one.seq)), texts, st.randoms()
)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_rows_does_not_matter(rows: list[PoolRow], text: str, chance: Any) -> None:
    """Shuffled rows have the scores that they had."""
    order = [*range(len(rows))]
    chance.shuffle(order)
    one, other = ask(text, pool(rows)).total, ask(text, pool([rows[at] for at in order])).total
    first = ask(text, pool(rows), stages=1).total
    if len({*first.round(6)}) == len(first):  # the rank among equals is free, and a sign counts it
        assert close(one[order], other)


@given(st.lists(made, max_size=12), st.text(max_size=40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_scores_are_numbers(rows: list[PoolRow], text: str, embed: bool) -> None:
    """Whatever is asked of whatever rows, no score is NaN or infinite."""
    assert np.isfinite(ask(text, pool(rows), embed=embed).total).all()


def test_what_all_texts_share_does_not_tell_them_apart() -> None:
    """With the means taken away, a fact that is like any text falls behind one that is like the question."""
    shared, meant = np.eye(64, dtype=np.float32)[:2]
    typical, own = 0.95 * shared + 0.31 * -meant, 0.6 * shared + 0.8 * meant
    asked = 0.9 * shared + 0.43 * meant
    features = extract_features("x").to_bytes()
    rows = [PoolRow(features=features, vectors=one.tobytes()) for one in (typical, own)]
    read, vector = parse_query("what?", now=NOW), Embedding(asked)
    weights = RankingWeights(first=FeatureWeights(vector=1.0), second=FeatureWeights(centered=1.0))
    center = Center(texts=0.9 * shared, questions=0.9 * shared)
    found = score(read, pool(rows), vector=vector, weights=weights, center=center)
    assert found.top(1).tolist() == [1]
    assert found.parts["centered"][1] > 0.9 > 0 > found.parts["centered"][0]
    without = score(read, pool(rows), vector=vector, weights=weights)
    assert not without.parts["centered"].any()


def test_nothing_is_found_among_nothing() -> None:
    """An empty pool, and one that lost everything, give nothing."""
    held = pool([row("a dog")])
    held.drop(0)
    assert ask("dog", pool([])).top(5).tolist() == ask("dog", held).top(5).tolist() == []


def test_windows_stay_in_their_thread() -> None:
    """What was said in another thread, or far away in the same, lends nothing."""
    rows = [row("a dog", thread="a", seq=0), row("yes", thread="b", seq=1), row("no", thread="a", seq=99)]
    held = pool(rows)
    assert (neighbours_of(held).table == held.size).all()
    parts = ask("dog", held, embed=False).parts
    assert parts["window"][1] == pytest.approx(parts["window"][2])


def test_windows_of_long_messages_are_not_shared() -> None:
    """A message too long for a window lends nothing and borrows nothing."""
    rows = [row("dog " * 200, thread="a", seq=0), row("river", thread="a", seq=1)]
    window = segments_of(pool(rows))
    assert window.count > 2
    assert window.window_sizes[-1] == 1


def test_a_long_message_is_found_by_its_best_part() -> None:
    """One matching passage in much else is found as well as the passage alone."""
    long = "the weather was fine again. " * 60 + "The door code is 4711. " + "we talked of the weather. " * 60
    rows = [row(long), row("The weather was fine."), row("A code of honour.")]
    assert ask("door code", pool(rows), embed=False).top(1).tolist() == [0]


@pytest.mark.parametrize("question", ["Where is Ann's new flat?", "When did Ben start pottery?"])
def test_another_row_hardly_changes_the_order(question: str) -> None:
    """A row that has nothing to do with the question neither takes the first place nor gives it away."""
    before = ask(question, pool(talk())).top(1).tolist()
    after = ask(question, pool([*talk(), row("Onions need sun.")])).top(1).tolist()
    assert before == after


def test_users_count_more_than_assistants() -> None:
    """The same words weigh more from the user, unless the assistant's are asked for."""
    rows = [
        row("The book is Dune.", role=role, thread="a", seq=seq * 50)
        for seq, role in enumerate(["assistant", "user"])
    ]
    assert ask("which book?", pool(rows)).top(1).tolist() == [1]
    assert ask("which book did you recommend?", pool(rows)).top(1).tolist() == [0]


def test_a_time_that_is_named_counts() -> None:
    """Of two equal rows, the one from the time asked for leads."""
    rows = [row("I bought shoes.", time=NOW - back * 86_400_000) for back in (200, 8, 100)]
    assert ask("what did I buy last week?", pool(rows)).top(1).tolist() == [1]


def test_small_boosts_break_ties() -> None:
    """Confidence, importance and recency decide between equals and never more than that."""
    rows = [
        row("a dog", confidence=0.5),
        row("a dog", confidence=0.9),
        row("a dog named Rex", confidence=0.1),
    ]
    assert ask("dog", pool(rows[:2])).top(1).tolist() == [1]
    assert ask("dog Rex", pool(rows)).top(1).tolist() == [2]


def test_the_second_look_is_kept_for_rows_that_are_allowed() -> None:
    """Rows outside of the mask keep their place behind those that were looked at again."""
    held = pool(talk())
    read = parse_query("new flat", now=NOW)
    mask = np.arange(held.size) > 2
    assert set(score(read, held, mask=mask).top(4).tolist()) == {3, 4, 5, 6}
    assert np.isfinite(score(read, held, mask=np.zeros(held.size, np.bool_)).total).all()


def test_statistics_of_the_scope_outweigh_those_of_the_pool() -> None:
    """A term that is rare in the pool but common in the scope counts little."""
    rows = [row("green tea", embed=False), row("black coffee", embed=False), row("a cup", embed=False)]
    ids = dict(zip(("green", "coffee"), extract_features("green coffee").terms, strict=True))
    rare = ScopeStatistics(count=10_000, frequencies={ids["green"]: 9_000, ids["coffee"]: 3})
    assert ask("green coffee", pool(rows, statistics=rare), embed=False).top(1).tolist() == [1]


class _Tokens:
    """An embedder's answer with one token for each word."""

    def __init__(self, text: str) -> None:
        found = text.lower().split()
        vectors = np.stack([EMBEDDER.embed([word])[0].pooled for word in found])
        self.words: tuple[str, ...] | None = tuple(found)
        self.tokens: Array | None = np.round(vectors * 127).astype(np.int8)
        self.pooled: Array = EMBEDDER.embed([text])[0].pooled


def test_token_vectors_are_asked_for_once() -> None:
    """The second look uses token vectors where there are any, and fetches those of a row once."""
    said = ["red apples", "green pears", "blue plums"]
    asked: list[int] = []

    def tokens(rows: Array) -> list[Array]:
        asked.extend(rows.tolist())
        return [found for at in rows if (found := _Tokens(said[at]).tokens) is not None]

    held = pool([row(text) for text in said], token_loader=tokens)
    vector: QueryEmbedding = _Tokens("green pears")
    score(parse_query("green pears", now=NOW), held, vector=vector)
    scored = score(parse_query("green pears", now=NOW), held, vector=vector)
    assert scored.top(1).tolist() == [1]
    assert "match" in scored.parts
    assert sorted(asked) == [0, 1, 2]


def test_messages_of_threads_without_the_person_asked_about_stand_behind() -> None:
    """They say the same in the first person; one that was taken out brings nobody into its thread."""
    text = "I moved to a flat by the river."
    rows = [
        row(text, thread="hers", seq=1, speaker="Ann", time=1),
        row(text, thread="theirs", seq=1, speaker="Ben", time=2),
        row(f"Ann: {text}", thread="theirs", seq=2, speaker="Ben", time=3),
        row("Gone.", thread="theirs", seq=3, speaker="Ann", time=4),
    ]
    held = pool(rows)
    held.drop(3)
    (hers, theirs, about_her, _) = ask("Where did Ann move?", held).parts["elsewhere"].tolist()
    assert (hers, about_her) == (0.0, 0.0)
    assert theirs < 0.0
