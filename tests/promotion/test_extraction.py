"""The extractor proposes memories, and only where there is one."""

import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Evidence
from omoide.errors import Invalid, InvalidRecord
from omoide.promotion import RULES, Rule, extract
from omoide.promotion.extraction import MAX_ITEMS
from omoide.shortterm import PendingItem

found_in = partial(extract, thread="thread_1", seq=4, agent_id="coder", at=1000)


def types(text: str, role: str = "user") -> list[str | None]:
    return [item.memory_type for item in found_in(text, role=role)]


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("We chose Postgres over MySQL because of pgvector.", "decision"),
        ("We've decided to use Redis for the cache.", "decision"),
        ("The team agreed on weekly releases.", "decision"),
        ("Okay, let's go with option B.", "decision"),
        ("**Decision:** the importer stays synchronous.", "decision"),
        ("Always run the migrations before deploying.", "convention"),
        ("Never commit secrets to the repository.", "convention"),
        ("Please always write the test first.", "convention"),
        ("You should never push to main directly.", "convention"),
        ("Convention: module names are nouns.", "convention"),
        ("Note to self: check that the table exists first.", "lesson_learned"),
        ("We learned the hard way that the cache has to be warmed.", "lesson_learned"),
        ("Next time, make sure the backup has finished.", "lesson_learned"),
        ("The migration may break old clients.", "risk"),
        ("There is a real risk of data loss during the upgrade.", "risk"),
        ("The timeout might be caused by the connection pool.", "hypothesis"),
        ("I suspect a race condition in the scheduler.", "hypothesis"),
        ("Maybe it's because the disk is full.", "hypothesis"),
        ("The root cause was a missing index.", "root_cause"),
        ("The outage was caused by an expired certificate.", "root_cause"),
        ("There's a bug in the date parser.", "bug"),
        ("The upload fails with a 504 on files over 2 MB.", "error"),
        ("Turns out the API returns dates in local time.", "discovery"),
        ("I found that the header is case sensitive.", "discovery"),
        ("I found an undocumented endpoint for exports.", "discovery"),
        ("Open question: which licence do we need?", "unknown"),
        ("It is still unclear whether the licence allows this.", "unknown"),
        ("We have not decided which queue to use.", "unknown"),
        ("The cause is unknown.", "unknown"),
        ("We don’t know why the build is slow.", "unknown"),
        ("TODO: add an index on created_at.", "task"),
        ("The project uses Phoenix 1.7.", "fact"),
        ("Our backend is written in Elixir.", "fact"),
        ("We use Kubernetes for staging.", "fact"),
        ("I prefer tabs over spaces.", "fact"),
        ("My name is Alex.", "fact"),
    ],
)
def test_telling_sentences_are_found(text: str, type: str) -> None:
    """Each is one memory of its type, in the words it was said in."""
    (item,) = found_in(text, role="user")
    assert item.memory_type == type
    assert item.content == text.replace("**", "")


@pytest.mark.parametrize(
    "text",
    [
        "Have we decided which database to use?",
        "Should we always run the linter?",
        "What happens when we use Redis?",
        "If we chose Postgres, would pgvector work",
        "Once we decided that, things got easier.",
        "Before we decided to do that I was unsure.",
        "I wish we chose Postgres.",
        "We haven't agreed on anything.",
        "We could use Redis.",
        "We used to use MySQL.",
        "The project does not use Redis.",
        "Maybe the project uses Redis.",
        "Never mind, it works now.",
        "Always happy to help.",
        "It never works.",
        "I always forget the flag.",
        "It shouldn't break anything.",
        "There is no risk of that.",
        "There is no bug here.",
        "The bug is fixed.",
        "The test never fails on main.",
        "It was all for a good cause and it was fun.",
        "I found a nice cafe.",
        "I don't know what you mean.",
        "I picked up a few recipes.",
        "Call me when you are done.",
        "Thanks, that is great!",
        "We use it.",
        "```\nWe decided to use Redis for the cache.\n```",
        "> We decided to use Redis for the cache.",
        "    # TODO: add an index on created_at",
        "We decided to use " + "very " * 100 + "long names.",
        "",
    ],
)
def test_other_sentences_are_left_alone(text: str) -> None:
    """Questions, conditions, denials, courtesies, code, quotations, and what is too long or too short."""
    assert types(text) == []


def test_a_memory_points_at_what_was_said() -> None:
    """With the sentence, its reason, who said it and when; alone enough to be promoted."""
    text = "Hello there! We chose Postgres over MySQL because of pgvector. How are you?"
    (item,) = found_in(text, role="user")
    entry = item.entry
    sentence = "We chose Postgres over MySQL because of pgvector."
    assert entry.evidence == (Evidence(kind="message", ref="thread_1:4", quote=sentence),)
    assert (entry.content, entry.rationale) == (sentence, "pgvector")
    assert (entry.agent_id, entry.source, entry.confidence, entry.created_at) == ("coder", "user", 0.8, 1000)
    assert item.importance_score == pytest.approx(0.68)
    assert item.suggested_by == "implicit"


def test_an_assistant_is_less_sure() -> None:
    """It is the source of what it says, and makes no rules for others."""
    (item,) = found_in("We decided to use Redis for the cache.", role="assistant")
    assert (item.source_type, item.confidence) == ("agent", 0.6)
    assert types("Always run the migrations before deploying.", "assistant") == []
    assert types("I prefer tabs over spaces.", "assistant") == []


@pytest.mark.parametrize("role", ["system", "tool"])
def test_only_people_and_assistants_are_listened_to(role: str) -> None:
    """What a tool prints is nobody's decision."""
    assert types("We decided to use Redis for the cache.", role) == []


def test_a_message_can_hold_several_memories() -> None:
    """In their order, each sentence once, and no more than a few."""
    text = "We use Redis for caching. There's a bug in the parser.\n" + "- TODO: fix the parser\n" * 2
    assert types(text) == ["fact", "bug", "task"]
    many = "\n".join(f"- TODO: write chapter {at}" for at in range(50))
    assert len(types(many)) == MAX_ITEMS


def test_the_same_message_gives_the_same_items() -> None:
    """Under the same ids; another place, sentence or rule gives another."""
    text = "We decided to use Redis for the cache."
    assert found_in(text, role="user") == found_in(text, role="user")
    ids = {
        found_in(text, role="user")[0].id,
        extract(text, role="user", thread="thread_1", seq=5, agent_id="coder", at=0)[0].id,
        extract(text, role="user", thread="thread_2", seq=4, agent_id="coder", at=0)[0].id,
        found_in(text.replace("cache", "queue"), role="user")[0].id,
        found_in(text, role="user", rules=[Rule(name="mine", type="fact", pattern="decided")])[0].id,
    }
    assert len(ids) == 5


def test_rules_can_be_replaced() -> None:
    """They are data; the first that fits decides, and no rules find nothing."""
    mine = Rule(name="ship", type="milestone", pattern=r"^shipped\b", unless="not really", confidence=0.9)
    rules = [mine, *RULES]
    (item,) = found_in("Shipped version 2 of the importer.", role="user", rules=rules)
    assert (item.memory_type, item.confidence, item.rationale) == ("milestone", 0.9, None)
    assert found_in("Shipped version 2, not really.", role="user", rules=rules) == ()
    assert found_in("We decided to use Redis for the cache.", role="user", rules=[]) == ()
    assert Rule.from_json(mine.to_json()) == mine


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"pattern": "("}, "pattern is not a valid regular expression"),
        ({"unless": "["}, "unless is not a valid regular expression"),
        ({"type": "rumour"}, "type is 'rumour'"),
        ({"confidence": 7}, "confidence is 7"),
        ({"roles": ["tool"]}, "roles is 'tool'"),
        ({"name": ""}, "name is empty"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(fields: dict[str, object], problem: str) -> None:
    """The error names the part."""
    with pytest.raises(InvalidRecord, match=f"invalid rule: {problem}"):
        Rule.new({"name": "x", "type": "fact", "pattern": "x", **fields})


def test_bad_input_is_refused() -> None:
    """Text is text, and a place is a number."""
    with pytest.raises(Invalid, match="text must be a string"):
        found_in(None, role="user")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="seq is -1"):
        extract("x", role="user", thread="t", seq=-1, agent_id="a")


STARTS = [
    "we decided to",
    "the project uses",
    "always run",
    "TODO:",
    "there's a bug",
    "turns out",
    "i prefer",
]
WORDS = st.sampled_from(
    [*STARTS, "Redis", "not", "if", "never", "might", "because of", "it", ".", "?", "open question:"]
)
LINES = st.lists(WORDS, max_size=20).map(" ".join)
TEXTS = st.lists(LINES, max_size=3).map("\n\n".join) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0")
)


@given(TEXTS, st.sampled_from(["user", "assistant"]))
def test_whatever_is_said_the_items_are_whole(text: str, role: str) -> None:
    """They can be kept, quote what was said, and have ids of their own."""
    items = found_in(text, role=role)
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert PendingItem.from_json(item.to_json()) == item
        (evidence,) = item.evidence
        assert evidence.quote == item.content
        assert not item.content.endswith("?") or item.memory_type == "unknown"


@pytest.mark.parametrize(
    "piece",
    [
        "we decided ",
        "a",
        "maybe it ",
        "might be ",
        "the cause of x ",
        "because ",
        "we ",
        "the project ",
        "x. ",
        "- ",
    ],
)
def test_no_message_takes_long(piece: str) -> None:
    """Sixteen times the text takes about sixteen times as long, whatever it is made of."""

    def cost(length: int) -> float:
        line = piece * (300 // len(piece)) + ".\n\n"
        text, tries = line * (length // len(line)), []
        for _ in range(3):
            start = time.process_time()
            found_in(text, role="user")
            tries.append(time.process_time() - start)
        return min(tries)

    assert cost(48_000) < 100 * cost(3_000) + 0.05
