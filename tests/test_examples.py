"""The examples run as programs, and return what they show."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omoide import Store, identity, memory, thread
from omoide.testing import StoreSuite, reproducible

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def run_example(name: str) -> Any:
    """Run an example's main with a fixed clock and counted ids, and return its result."""
    with reproducible():
        return module(name).main()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_as_a_program(path: Path, tmp_path: Path) -> None:
    """Run from anywhere, an example ends well, prints something, and writes no escape codes into a pipe."""
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_returns_what_it_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An example opens with a statement, and its documented main prints and returns something to check."""
    loaded = module(path.stem)
    assert (inspect.getdoc(loaded) or "").split("\n")[0].endswith(".")
    assert inspect.getdoc(loaded.main)
    assert loaded.main() is not None
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_reproducible(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a clock that stands still and ids that count, two runs print and return the same."""
    seen = []
    for _ in range(2):
        with reproducible():
            seen.append((str(module(path.stem).main()), capsys.readouterr().out))
    assert seen[0] == seen[1]


def test_the_weather_agent_keeps_its_beliefs() -> None:
    """Spaces count apart, the stale write is refused and repeated, and the reserved space stays."""
    day = run_example("weather")
    assert memory.world(day.agent) == {"temperature": 23, "location": "Portland"}
    assert {name: space.rev for name, space in day.believed.spaces.items()} == {
        "world": 4,
        "tasks": 3,
        "sensors": 1,
    }
    assert day.believed.rev == 9
    assert (day.conflict.expected, day.conflict.actual) == (2, 3)
    assert day.refusal.space == "world"
    assert [task["status"] for task in memory.tasks(day.agent)] == ["done", "open"]


def test_the_robot_revises_its_intentions() -> None:
    """When the door closes, the plan through it is dropped and another one reaches both goals."""
    escape = run_example("bdi")
    assert escape.done == [
        "walk to the door",
        "walk to the window",
        "climb out of the window",
        "take the blanket",
    ]
    assert escape.dropped == ["go through the door"]
    facts = memory.world_get(escape.agent, "facts")
    assert facts["outside"]
    assert facts["warm"]
    assert memory.tasks_open(escape.agent) == []


def test_the_blackboard_is_solved_by_its_sources() -> None:
    """Every source contributed, the solution names its evidence, and no step failed."""
    case = run_example("blackboard")
    assert case.solution == "occupant"
    assert {*case.contributions} == {"read_sensor", "weigh", "conclude"}
    assert case.contributions[-1] == "conclude"
    assert memory.get_in_space(case.agent, "solution", "because") == ["e1", "e2", "e3"]


def test_the_reasoning_loop_finds_its_answer() -> None:
    """The loop ran the tool that the agent asked for; every task is done and the scratch holds the answer."""
    answered = run_example("react")
    assert answered.answer == "31 years"
    world = memory.world(answered.agent)
    assert world["scratch"]["found"] == {"Hubble": 1990, "Webb": 2021, "years": 31}
    assert world["tool_state"]["last_result"] == {"years": 31}
    assert world["pointers"]["launches"]["index"] == "telescopes"
    assert memory.tasks_open(answered.agent) == []
    assert answered.agent.state["__strategy__"].done
    assert sum(line.startswith("observation") for line in answered.lines) == 2


def test_the_character_drifts_and_keeps_its_secrets() -> None:
    """Mounting wrote the extension, the core counts years, the plugin lets traits drift, and secrets stay."""
    life = run_example("character")
    assert identity.age(life.young) is None
    assert identity.age(life.old) == 7
    young, old = (identity.get_extension(agent, "character") for agent in (life.young, life.old))
    assert young["persona"]["role"] == "Data analyst"
    assert [trait["intensity"] for trait in old["persona"]["traits"]] == [0.691, 0.357]
    assert life.young.state["character"] == {"mounted_at": 1_000}
    assert life.shown["extensions"] == {
        "character": {"persona": {"role": "Lead analyst"}, "voice": {"tone": "professional"}}
    }


def test_the_pool_gives_its_reasons() -> None:
    """Capability, tag, limit and age decide, each choice has its reason, and the chosen one is remembered."""
    round = run_example("pool")
    assert round.chosen == {
        "a page": "veteran",
        "a slow page": "scout",
        "an old page": "archivist",
        "a song": None,
        "a page, later": "scout",
    }
    assert len(round.reasons) == 3
    assert "7 years" in round.reasons[0]
    assert "max_runtime_ms 30000 allows for 10000" in round.reasons[1]
    known = memory.world_get(round.dispatcher, "known_agents")["scout-1"]
    assert known["trust"] == 0.8
    assert known["snapshot"]["profile"] == {"age": 11}


def test_the_librarian_takes_in_what_it_asked_for() -> None:
    """The question is a directive, the answer lands in the plugin's space, and a failure becomes a task."""
    found = run_example("rag")
    assert found.asked.provider == "semantic"
    assert found.texts[0] == "Postgres was chosen because of pgvector."
    assert len(found.texts) == 2
    assert memory.world_get(found.agent, "pointers") == {"semantic": {"provider": "words", "index": "shop"}}
    assert memory.has_space(found.agent, "rag:cache")
    assert memory.tasks(found.agent) == []
    assert [task["text"] for task in memory.tasks_open(found.after_failure)] == [
        "Ask again: provider is away"
    ]


def test_the_demo_tells_a_story_that_is_true() -> None:
    """What is promoted, superseded, stale, resumed, recalled and sent to the model is what it says."""
    shown = run_example("demo")
    assert "I prefer to be called Alex." in shown.promoted
    assert {*shown.superseded} == {"The shop runs on Postgres 14.", "We run on Postgres 14."}
    assert shown.stale == ["Carts are kept in Postgres."]
    assert shown.resumed == "One on the customer, one on the day of the order."
    assert shown.recalled[0] == "Carts are kept in SQLite."
    assert '"Carts are kept in SQLite."' in shown.prompt
    assert "Postgres" not in shown.prompt
    assert shown.answer == "In SQLite, Alex, because one file is easy to back up."


def test_the_greenhouse_shows_what_it_claims() -> None:
    """Conflict, failure, reason, snapshot and round trip are as it tells them."""
    shown = run_example("greenhouse")
    assert (shown.conflict.expected, shown.conflict.actual) == (1, 2)
    assert shown.failure.kind == "ValueError"
    assert shown.kept_state
    assert "max_litres 40 allows for 25" in shown.reason
    assert shown.snapshot["extensions"] == {"diary": {"mood": "patient"}}
    assert "fern" not in str(shown.snapshot)
    assert shown.came_back_equal
    assert shown.recalled == "The ferns wilt when it is hotter than 35 degrees."
    assert shown.answer == "No more than 35 degrees."
    assert identity.age(shown.agent) == 3
    assert memory.world_get(shown.agent, "temperature") == 29.0
    assert [task["text"] for task in memory.tasks_open(shown.agent)] == ["Open the roof"]
    assert [entry.payload["status"] for entry in thread.filter_by_kind(shown.agent, "instruction_end")] == [
        "ok",
        "error",
        "ok",
        "ok",
    ]


def test_the_help_desk_remembers_and_forgets() -> None:
    """What one program learned another one recalls; changed, forgotten, restored and erased all differ."""
    desk = run_example("durable")
    assert [receipt.outcome for receipt in desk.receipts] == ["stored", "stored", "stored", "duplicate_of"]
    assert desk.answer.entries[0].id == "repair"
    assert desk.answer.hits[0].why.evidence == ("document invoice-311.pdf",)
    assert desk.after_change == "Parcels go to 4 Harbour Street."
    assert desk.after_forgetting == ["new-address", "repair"]
    assert desk.after_restoring == ["name", "new-address", "repair"]
    assert (desk.erased.ids, desk.erased.versions, desk.erased.scrubbed) == (("address",), 2, True)
    assert sorted(desk.left) == ["name", "new-address", "repair"]


def test_the_chat_log_knows_who_and_when() -> None:
    """The right message leads by its words, its neighbours, speaker and week; nonsense is irrelevant."""
    answered = run_example("chatlog")
    best = {question: result.entries[0].content for question, result in answered.answers.items()}
    assert answered.kept == 12
    assert best["Where is Maria's new flat?"].startswith("I finally moved")
    assert best["What did Ben sell last week?"] == "We sold out by noon every day."
    assert best["Why is the trip to Oslo off?"].startswith("Pixel ate my passport")
    relevance = [max(hit.relevance or 0.0 for hit in result.hits) for result in answered.answers.values()]
    assert relevance[-1] == min(relevance) < 0.05
    dog = answered.answers["What kind of dog does Maria have?"]
    assert "Pixel. She is a whippet." in [entry.content for entry in dog.entries]
    parts = {reason.part for reason in answered.answers["What did Ben sell last week?"].hits[0].why.reasons}
    assert {"speaker", "date"} <= parts


def test_the_own_store_keeps_its_file() -> None:
    """A second store over the same file answers, and can be asked what it offers."""
    kept = run_example("own_store")
    assert (kept.is_store, kept.can_erase, kept.entries) == (True, False, 3)
    assert kept.answer.entries[0].content == "Tulips are planted in November."
    assert str(kept.answer.hits[0].why) == "words +2.00: plant, tulip"


def test_the_support_agent_recalls_what_left_its_window() -> None:
    """The first turn left the prompt and is recalled, the last one stands in it, and others know neither."""
    talk = run_example("support")
    assert talk.answers == ["Your order is A-7.", "No: it is a present."]
    assert talk.other == "I do not know your order."
    assert (talk.turns, talk.in_window) == (6, 1)
    prompt = talk.preview.prompt
    assert "my order is A-7" in prompt.messages[0].content
    assert "is a present" not in prompt.messages[0].content
    assert prompt.tokens["total"] <= prompt.tokens["allowed"]
    assert sum(cut.count for cut in prompt.cut if cut.part == "history") == 3


def test_the_tenants_share_an_agent_and_nothing_else() -> None:
    """Each tenant hears its own rule, a stranger none, a turn without a tenant is refused, one is erased."""
    served = run_example("tenants")
    assert "30 days" in served.answers["acme"]
    assert "14 days" in served.answers["zen"]
    assert served.answers["new"] == "I have no rule for that."
    assert served.refusal.key == "tenant_id"
    assert served.kept == {"acme": 2, "zen": 2}
    assert served.left == {"acme": 0, "zen": 2}


def test_the_refund_is_made_once() -> None:
    """The turn waits for a yes, dies in the refund, asks what became of it, and the bank paid one time."""
    made = run_example("refund")
    assert made.statuses == ["waiting", "running"]
    assert made.questions[0] == "Run refund?"
    assert "its outcome is unknown" in made.questions[1]
    assert made.books == ["case-7:lamp:call_1: 40.00 for A-7"]
    assert made.answer == 'Done: {"order":"A-7","refunded":40}'
    told_of = [kind for kind in made.transcript if kind != "note"]
    assert told_of == ["message", "message", "tool_call", "tool_result", "message"]
    assert made.transcript.count("note") == 3  # once for each time somebody went on with the turn


def test_the_chat_streams_and_remembers(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer comes in pieces that are printed as they come, and the last one is from memory."""
    chat = run_example("streaming")
    assert chat.answers[-1] == "You once told me: My sister Clara keeps bees."
    assert chat.pieces == sum(len(answer.split()) for answer in chat.answers)
    assert chat.events.count("memory_written") == 3
    assert chat.tokens > 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["> My sister Clara keeps bees.", "< I will remember that."]


class TestOwnStore(StoreSuite):
    """The store of the example does what every store has to do."""

    def open_store(self, folder: Path) -> Store:
        store: Store = module("own_store").JsonLinesStore(folder / "memory.jsonl")
        return store


def test_knowledge_is_followed_through() -> None:
    """What rests on something that was replaced is stale, says why, and is in the graph as such."""
    known = run_example("knowledge")
    assert sorted(known.before) == ["driver", "dry", "hang", "pool", "tests"]
    assert sorted(known.stale) == ["pool", "tests"]
    assert all("superseded by driver-2 (upgraded" in one for one in known.why)
    assert sorted(known.after) == ["driver-2", "dry", "hang"]
    assert "requirements.lock" in str(known.provenance)
    assert known.copied == 6


def test_the_demo_tells_where_to_read_on() -> None:
    """Every other example is named by the demo, so that a new one does not stay unknown."""
    source = (FOLDER / "demo.py").read_text("utf-8")
    assert [path.stem for path in EXAMPLES if path.stem not in source and path.stem != "demo"] == []


def test_the_demo_is_bold_only_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal headings are bold, unless NO_COLOR is set."""
    demo = module("demo")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    demo.heading("Loud")
    monkeypatch.setenv("NO_COLOR", "1")
    demo.heading("Quiet")
    assert capsys.readouterr().out == "\n\x1b[1mLoud\x1b[0m\n\nQuiet\n"
