"""The examples of running agents show what they say."""

from tests.test_examples import run_example

from omoide import identity, memory, thread


def test_the_watcher_raises_an_alarm_and_ends_it() -> None:
    """Ticks project the readings: the alarm comes and goes, somebody is called once, nonsense is counted."""
    seen = run_example("monitoring")
    alarms = ["ALARM" in line for line in seen.ticks]
    assert alarms == [False, True, True, False]
    assert seen.called == ["08:10 the engineer: the boiler has 93.0 °C"]
    assert [task["text"] for task in memory.tasks_open(seen.agent)] == [
        "check its filter",
        "Look after the boiler",
    ]
    world = memory.world(seen.agent)
    assert (world["boiler"], world["troubles"]) == ({"celsius": 60.5}, 1)
    assert "alarm" not in world
    assert "Pump 2 was serviced" in world["summary"]["content"]
    assert len(thread.filter_by_kind(seen.agent, "reading")) == 14


def test_the_orchestrator_finds_somebody_for_every_job_that_can_be_done() -> None:
    """The oldest worker is chosen, a crash costs it one job, and without it the next best has the work."""
    office = run_example("orchestrator")
    done_by = {job: known.get("by") for job, known in office.jobs.items()}
    assert done_by == {
        "home": "veteran-1",
        "map": "scout-1",
        "news": "veteran-1",
        "prices": "scout-1",
        "old": "archivist-1",
        "fish": None,
    }
    assert office.jobs["fish"]["status"] == "refused"
    assert office.jobs["old"]["reason"] == (
        "archivist: offers fetch_page; carries the tag archive; is 9 years old"
    )
    assert office.restarts == 1
    assert [line.partition(":")[0] for line in office.left] == ["veteran"]
    assert {*memory.of(office.orchestrator).spaces["team"].data} == {"scout", "archivist"}
    assert office.shown == ["archivist-1", "office", "scout-1"]
    assert not identity.has_identity(office.orchestrator)


def test_the_clerk_answers_from_the_store() -> None:
    """What was put in comes back with scores, best first, and a provider that hangs is told as an error."""
    found = run_example("rag_agent")
    assert found.pointers == {"semantic": {"provider": "library", "index": "shop"}}
    learned, postgres, hours, away = found.answers.values()
    assert learned == "learned: ok"
    assert postgres.startswith("Postgres was chosen because")
    assert hours.startswith("The shop opens at nine")
    scores = [float(part.rpartition("(")[2].rstrip(")")) for part in postgres.split("; ")]
    assert scores == sorted(scores, reverse=True)
    assert away == "I cannot look that up now: timed out after 1 s"
    assert found.agent.state["rag"] == {"mounted_at": 1_000}
    assert len(memory.of(found.agent).spaces["rag:cache"].data) == 4
