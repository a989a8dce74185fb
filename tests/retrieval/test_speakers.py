"""Tests of the index of speakers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval.queries import SpeakerNames, parse_query

NOW = 1_700_000_000_000
NAMES = ("Ann", "Ben Okafor", "Melanie", "José", "Theo", "田中", "Didier", "Mary-Lou Smith", "Paul 7")


@pytest.mark.parametrize(
    ("text", "speakers", "named"),
    [
        ("Where did Ann go?", ["Ann", "Ben"], ["Ann"]),
        ("where did ann go", ["Ann", "Ben"], ["Ann"]),
        ("What did Mel paint?", ["Melanie", "Melvin", "Ben"], ["Melanie", "Melvin"]),
        ("Jose called", ["José"], ["José"]),
        ("田中さんは何を食べた", ["田中", "鈴木"], ["田中"]),
        ("What does Ann eat?", ["Ann Lee", "Ann Berg", "Ben Berg"], ["Ann Lee", "Ann Berg"]),
        ("Where is the flat?", ["Ann"], []),
        ("", ["Ann"], []),
    ],
)
def test_speakers_are_found_by_the_words_of_their_names(
    text: str, speakers: list[str], named: list[str]
) -> None:
    """By any word, without case and accents, by a short form, and inside a run of letters."""
    names = SpeakerNames(speakers)
    assert [names[number] for number in names.named_in(text)] == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("What does Ann eat?", ["Ann"]),
        ("What does Ann Lee eat?", ["Ann Lee"]),
        ("What does Ben Berg eat?", ["Ben Berg"]),
        ("What do Ann and Ben eat?", ["Ann", "Ben Berg", "Ben Lee"]),
    ],
)
def test_a_whole_name_comes_before_a_part_of_another(text: str, named: list[str]) -> None:
    """Who shares a part of the name is meant where nobody's whole name is given."""
    names = SpeakerNames(["Ann", "Ann Berg", "Ann Lee", "Ben Berg", "Ben Lee"])
    assert [names[number] for number in names.named_in(text)] == named


def test_a_removed_speaker_leaves_the_numbers_of_the_others() -> None:
    """It is not found any more, until it is added with another number."""
    names = SpeakerNames(["Ann", "Ben"])
    names.remove(0)
    assert (names.named_in("Do Ann and Ben sing?"), [*names]) == ([1], ["", "Ben"])
    assert (names.add("Ben"), names.add("Ann")) == (1, 2)
    assert (names.named_in("Do Ann and Ben sing?"), names[2], names[1:], len(names)) == (
        [1, 2],
        "Ann",
        ["Ben", "Ann"],
        3,
    )


@given(
    words=st.lists(st.sampled_from([*NAMES, "Mel", "Didi", "theo", "jose", "the", "went"]), max_size=6),
    speakers=st.lists(st.sampled_from(NAMES), unique=True),
)
def test_a_query_names_the_same_speakers_among_those_found(words: list[str], speakers: list[str]) -> None:
    """Where names have no word in common, no speaker that a query names is left out."""
    text = f"Did {' '.join(words)} sing?"
    found = SpeakerNames(speakers).named_in(text)
    all_named = parse_query(text, now=NOW, speakers=speakers).named_speakers
    assert all_named <= {*found}
    few = parse_query(text, now=NOW, speakers=[speakers[number] for number in found])
    assert {found[at] for at in few.named_speakers} == all_named
