"""Commands for relations and provenance."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from omoide.longterm import RELATIONS

Run = Callable[..., Result]
Answer = Callable[..., Any]


def ids(answer: Answer, *options: str) -> list[str]:
    """What a list holds, newest first."""
    return [entry["id"] for entry in answer("list", *options)["entries"]]


@pytest.mark.usefixtures("three")
def test_a_relation_is_seen_from_both_ends(omoide: Run, answer: Answer) -> None:
    """What relates two memories is told the same way, whichever of them is asked about."""
    assert omoide("relate", "m1", "contradicts", "m2").stdout == "m1 contradicts m2\n"
    assert omoide("related", "m1").stdout == "m2\tm1 contradicts m2\t\tMemory number 2.\n"
    assert omoide("related", "m2").stdout == "m1\tm1 contradicts m2\t\tMemory number 1.\n"
    found = answer("related", "m2")["related"]
    assert [(one["entry"]["id"], one["direction"], one["depth"]) for one in found] == [("m1", "in", 1)]
    assert omoide("related", "m3", code=1).stderr == "Nothing found.\n"


@pytest.mark.usefixtures("three")
def test_relations_are_followed_as_far_as_asked(omoide: Run, answer: Answer) -> None:
    """One step unless told, only by the relation that is named, and no more than the limit."""
    omoide("relate", "m1", "derived_from", "m2")
    omoide("relate", "m2", "refines", "m3")

    def found(*options: str, code: int = 0) -> list[str]:
        return [one["entry"]["id"] for one in answer("related", "m1", *options, code=code)["related"]]

    assert found() == ["m2"]
    assert found("--depth", "2") == ["m2", "m3"]
    assert found("--depth", "2", "--limit", "1") == ["m2"]
    assert found("--depth", "2", "--relation", "derived_from") == ["m2"]
    assert found("--relation", "refines", code=1) == []
    assert found("--relation", "same_type") == ["m3", "m2"]
    assert "depth is 9" in omoide("related", "m1", "--depth", "9", code=2).stderr


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.usefixtures("three")
def test_every_relation_can_be_undone(relation: str, omoide: Run, answer: Answer) -> None:
    """After `--undo` everything is as if nobody had said it, and a second time there is nothing to undo."""
    before = ids(answer)
    answer("relate", "m1", relation, "m2")
    assert answer("related", "m1")["related"] != []
    undone = answer("relate", "m1", relation, "m2", "--undo")
    assert undone == {"source": "m1", "relation": relation, "target": "m2", "undone": True}
    assert answer("related", "m1", code=1)["related"] == []
    assert ids(answer) == before
    failed = omoide("relate", "m1", relation, "m2", "--undo", code=1)
    assert f"relation 'm1 {relation} m2' does not exist" in failed.stderr


@pytest.mark.usefixtures("three")
def test_undoing_leaves_other_relations_alone(omoide: Run, answer: Answer) -> None:
    """What a memory rests on besides, and what another one replaced, stays."""
    omoide("relate", "m1", "derived_from", "m2")
    omoide("relate", "m1", "derived_from", "m3")
    omoide("relate", "m1", "derived_from", "m2", "--undo")
    assert [one["ref"] for one in answer("show", "m1")["entry"]["evidence"]] == ["m3"]
    omoide("relate", "m2", "superseded_by", "m3")
    omoide("relate", "m2", "superseded_by", "m1", "--undo", code=1)
    assert answer("show", "m2")["entry"]["superseded_by"] == "m3"


@pytest.mark.usefixtures("three")
def test_wrong_relations_change_nothing(omoide: Run, answer: Answer) -> None:
    """An unknown relation, a memory that is not there, itself, or strictly another type, is refused."""
    assert "'likes' is not one of 'refines'" in omoide("relate", "m1", "likes", "m2", code=2).stderr
    omoide("relate", "m1", "refines", "absent", code=1)
    omoide("relate", "m1", "refines", "absent", "--undo", code=1)
    omoide("relate", "m1", "refines", "m1", code=2)
    assert "takes a memory of type" in omoide("relate", "m1", "refines", "m2", "--strict", code=2).stderr
    omoide("relate", "m1", "refines", "m2", "--agent", "other", code=1)
    assert answer("related", "m1", code=1)["related"] == []


@pytest.mark.usefixtures("three")
def test_a_reason_stays_with_what_was_replaced(omoide: Run, answer: Answer) -> None:
    """Where one memory replaces another the reason is kept."""
    omoide("relate", "m3", "supersedes", "m2", "--reason", "newer")
    assert answer("show", "m2")["entry"]["superseded_reason"] == "newer"
    assert ids(answer) == ["m3", "m1"]


@pytest.mark.usefixtures("three")
def test_what_no_longer_holds_is_marked(omoide: Run, answer: Answer) -> None:
    """A stale memory is listed only when asked for, marked, and its chain is shown; restoring heals it."""
    omoide("relate", "m2", "derived_from", "m1")
    omoide("relate", "m3", "derived_from", "m2")
    assert "(stale)" not in omoide("list", "--stale").stdout
    omoide("forget", "m1", "--reason", "wrong")
    assert omoide("list", code=1).stderr == "Nothing found.\n"
    assert ids(answer, "--forgotten") == ["m1"]
    assert ids(answer, "--stale") == ["m3", "m2"]
    assert "(stale) Memory number 3." in omoide("list", "--stale").stdout
    shown = omoide("show", "m3").stdout
    assert "m3 depends on m2 depends on m1: forgotten (wrong, " in shown
    omoide("forget", "m3")
    assert "(forgotten, stale) Memory number 3." in omoide("list", "--forgotten", "--stale").stdout
    checks = {check["name"]: check for check in answer("doctor", code=0)["checks"]}
    assert checks["entries"]["detail"] == ("0 in use, 2 forgotten, 1 stale, 0 expired in the whole store")
    omoide("restore", "m1")
    assert ids(answer, "--stale") == ["m2", "m1"]
    assert "stale" not in omoide("show", "m2").stdout


def test_provenance_leads_back_to_what_was_said(learnt: str, omoide: Run, answer: Answer) -> None:
    """A promoted memory names the message it comes from, with its words; it fits on lines of its own."""
    shown = omoide("provenance", "tea").stdout.splitlines()
    assert shown[0].startswith("“Alex drinks tea.” (fact, tea, from agent, confidence 1, ")
    assert "“Alex drinks tea.”" in shown[1]
    traced = answer("provenance", "tea")["evidence"][0]
    assert (traced["status"], traced["said"]["content"]) == ("found", "Alex drinks tea.")
    omoide("provenance", "absent", code=1)


def test_a_long_chain_is_followed_as_far_as_asked(omoide: Run, answer: Answer) -> None:
    """Each step rests on the next; `--depth` ends it, and says so."""
    for number in range(25):
        omoide("remember", f"Step {number}.", "--id", f"s{number}")
        if number:
            omoide("relate", f"s{number}", "derived_from", f"s{number - 1}")
    assert omoide("provenance", "s24", "--depth", "30").stdout.count("\n") == 25
    assert "deeper than was asked for" in omoide("provenance", "s24").stdout
    assert "deeper" in omoide("provenance", "s24", "--depth", "1").stdout.splitlines()[1]
    assert answer("provenance", "s24", "--depth", "30")["entry"]["id"] == "s24"


def test_what_was_remembered_moves_no_cursor(omoide: Run) -> None:
    """Escapes in a memory are written out wherever it is shown."""
    omoide("remember", "red \x1b[31m\u202eevil", "--id", "m1", "--type", "unknown")
    omoide("remember", "plain", "--id", "m2")
    omoide("relate", "m2", "derived_from", "m1")
    for arguments in (["provenance", "m2"], ["related", "m2"], ["review"], ["prune", "--max-access", "0"]):
        shown = omoide(*arguments).output
        assert r"red \x1b[31m\u202eevil" in shown
        assert shown.replace("\n", "").replace("\t", "").isprintable()
