"""Tests of query parsing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval.queries import parse_query

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "speakers", "named", "spoken"),
    [
        ("Where did Ann go?", ["Ann", "Ben"], {0}, "Where did I go?"),
        ("What is Ben's dog called?", ["Ann", "Ben"], {1}, "What is my dog called?"),
        ("What did Mel paint with her kids?", ["Melanie"], {0}, "What did I paint with my kids?"),
        ("What is Mary Ann Smith's job?", ["Mary Ann Smith"], {0}, "What is my job?"),
        ("where did melanie go", ["Melanie"], {0}, "where did I go"),
        ("José called?", ["Jose"], {0}, "I called?"),
        ("Did Didier win?", ["Didier"], {0}, "Did I win?"),
        ("Did he win?", ["Didier"], set(), "Did he win?"),
        ("May I ask?", ["Mayra"], set(), "May I ask?"),
        ("What do Ann and Ben share?", ["Ann", "Ben"], {0, 1}, "What do I and I share?"),
        ("田中さんは何を食べた", ["田中", "鈴木"], {0}, "さんは何を食べた"),
        ("Where is the flat?", [], set(), "Where is the flat?"),
    ],
)
def test_people_named_speak_for_themselves(
    text: str, speakers: list[str], named: set[int], spoken: str
) -> None:
    """Names of the scope's speakers are found and turned into the first person."""
    read = parse_query(text, now=NOW, speakers=speakers)
    assert (set(read.named_speakers), read.encoder_text) == (named, spoken)


def test_names_are_no_terms() -> None:
    """The person asked about is not looked for in the words."""
    assert parse_query("What is Ann's dog?", now=NOW, speakers=["Ann"]).terms == ("dog",)
    assert parse_query("What is Ann's dog?", now=NOW).terms == ("ann", "dog")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("When did it rain?", "when"),
        ("How many cats?", "count"),
        ("Where is it?", "where"),
        ("Who came?", "who"),
        ("Why not?", "why"),
        ("What is it?", "what"),
    ],
)
def test_the_kind_of_thing_asked_for(text: str, kind: str) -> None:
    """The question's own word tells what an answer has to have."""
    assert parse_query(text, now=NOW).kind == kind


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("Which book did you recommend to me?", True),
        ("Remind me of the hotel you had suggested.", True),
        ("What was in your list of museums?", True),
        ("In our last chat about trains, which line was it?", False),
        ("What did you recommend in our last chat?", True),
        ("Which book did I buy?", False),
        ("Can you remind me what my dog is called?", False),
        ("What did I tell you about my sister?", False),
    ],
)
def test_what_the_assistant_said_is_asked_for(text: str, addressed: bool) -> None:
    """Only a question about what was answered is meant for the assistant."""
    assert parse_query(text, now=NOW).asks_assistant is addressed


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("What did Mraia buy?", "What did I buy?"),
        ("What did Marai buy?", "What did I buy?"),
        ("What did Marla buy?", "What did I buy?"),
        ("What did Mariah buy?", "What did Mariah buy?"),
        ("What did Ben and Anna buy?", "What did Ben and Anna buy?"),
        ("Marla bought what?", "Marla bought what?"),
    ],
)
def test_a_misspelt_name_inside_a_sentence_is_that_of_the_speaker(text: str, read: str) -> None:
    """One wrong letter is forgiven; a name that continues another, or begins a sentence, is its own."""
    assert parse_query(text, now=NOW, speakers=["Maria", "Hanna"]).encoder_text == read


def test_a_question_about_two_speakers_is_read_for_each() -> None:
    """Each reading is in the first person of one and names the other."""
    query = parse_query("What do Maria and Ben both like?", now=NOW, speakers=["Maria", "Ben", "Zoe"])
    assert [reading.encoder_text for reading in query.readings] == [
        "What do I and Ben both like?",
        "What do Maria and I both like?",
    ]
    assert [reading.named_speakers for reading in query.readings] == [{0}, {1}]
    assert parse_query("What does Maria like?", now=NOW, speakers=["Maria", "Ben"]).readings == ()


@pytest.mark.parametrize(
    ("text", "is_request"),
    [
        ("Write me a birthday mail for mom", True),
        ("Can you suggest a dinner for tonight?", True),
        ("Which port should I use?", True),
        ("Any ideas for a present?", True),
        ("Which port does staging use?", False),
        ("Where do I live?", False),
    ],
)
def test_requests_are_told_from_questions(text: str, is_request: bool) -> None:
    """Preferences and instructions apply where something is to be made or advised."""
    assert parse_query(text, now=NOW).is_request is is_request


@pytest.mark.parametrize(
    ("text", "one", "many"),
    [
        ("What's my phone number?", True, False),
        ("Who owns billing?", True, False),
        ("Where do I live?", True, False),
        ("Which languages do I speak?", False, True),
        ("What are my sisters called?", False, True),
        ("Where have I been?", False, False),
    ],
)
def test_the_number_of_answers_is_told(text: str, one: bool, many: bool) -> None:
    """A question for one value is told from one for several; most are neither for sure."""
    query = parse_query(text, now=NOW)
    assert (query.expects_one, query.expects_many) == (one, many)


@given(st.text(max_size=60), st.lists(st.text(max_size=8), max_size=4))
def test_any_question_among_any_speakers_can_be_read(text: str, speakers: list[str]) -> None:
    """Hostile names and questions are read without error, and name only speakers that there are."""
    assert parse_query(text, now=NOW, speakers=speakers).named_speakers <= set(range(len(speakers)))
