"""Sensors send signals to an agent, and processes run beside it, until they are stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    note_data,
    sig,
    to_plain,
)

from omoide.directives import Spawn, StartSensor, StopChild, StopSensor
from omoide.errors import WrongType
from omoide.runtime import Runtime
from omoide.testing import eventually


class Readings:
    """A sensor that yields what a test puts in, and says when it is closed."""

    def __init__(self) -> None:
        self.send, self._receive = anyio.create_memory_object_stream[Any](100)
        self.configs: list[Any] = []
        self.closed = 0

    async def sense(self, config: Any) -> AsyncGenerator[Any]:
        """Yield."""
        self.configs.append(to_plain(config))
        try:
            async with self._receive.clone() as readings:
                async for reading in readings:
                    yield reading
        finally:
            self.closed += 1

    def close(self) -> None:
        """Let go of what is left."""
        self.send.close()
        self._receive.close()


@pytest.fixture
def readings() -> Any:
    """A sensor by hand."""
    made = Readings()
    yield made
    made.close()


START = action_returning(StartSensor(sensor="thermo", tag="roof", config={"unit": "c"}))
STOP = action_returning(StopSensor(tag="roof"))


def sensor_agent(recorder: Any, **more: Any) -> Any:
    """An agent with a sensor."""
    return an_agent(
        "a", {"start": START, "stop": STOP, "temp.*": recorder, "sensor.thermo": recorder, **more}
    )


async def test_each_signal_of_a_sensor_comes_to_its_agent(
    readings: Readings, recorder: SignalRecorder
) -> None:
    """In order; what is no signal is wrapped, with the tag of the sensor."""
    async with Runtime(sensors={"thermo": readings.sense}) as runtime:
        await runtime.start(sensor_agent(recorder))
        await runtime.call("a", sig("start"))
        for reading in (sig("temp.high", 30), 21.5, {"deep": [1]}):
            await readings.send.send(reading)
        await eventually(lambda: len(recorder) == 3)
        assert recorder.types == ["temp.high", "sensor.thermo", "sensor.thermo"]
        assert recorder.data[1:] == [
            {"tag": "roof", "reading": 21.5},
            {"tag": "roof", "reading": {"deep": [1]}},
        ]
        assert recorder[1].source == "/omoide/agents/a"
        assert readings.configs == [{"unit": "c"}]


async def test_a_sensor_that_is_stopped_is_closed_and_says_no_more(
    readings: Readings, recorder: SignalRecorder
) -> None:
    """It can put away what it holds; the agent goes on without it."""
    async with Runtime(sensors={"thermo": readings.sense}) as runtime:
        await runtime.start(sensor_agent(recorder))
        await runtime.call("a", sig("start"))
        await readings.send.send(sig("temp.one"))
        await eventually(lambda: recorder.types == ["temp.one"])
        await runtime.call("a", sig("stop"))
        await eventually(lambda: readings.closed == 1)
        await readings.send.send(sig("temp.two"))
        await anyio.wait_all_tasks_blocked()
        assert recorder.types == ["temp.one"]


async def test_a_tag_is_one_sensors_own_while_it_runs(
    readings: Readings, errors: ErrorRecorder, recorder: SignalRecorder
) -> None:
    """Another cannot take it; after it was stopped or has ended by itself it is free, at once."""
    again = action_returning(StopSensor(tag="roof"), StartSensor(sensor="thermo", tag="roof"))
    async with Runtime(sensors={"thermo": readings.sense}) as runtime:
        await runtime.start(sensor_agent(recorder, again=again), on_error=errors)
        await runtime.call("a", sig("start"))
        await runtime.call("a", sig("start"))
        assert errors.kinds == ["IdTaken"]
        await eventually(lambda: len(readings.configs) == 1)
        await runtime.call("a", sig("again"))
        await eventually(lambda: (len(readings.configs), readings.closed) == (2, 1))
        await runtime.call("a", sig("stop"))
        await eventually(lambda: readings.closed == 2)
        await runtime.call("a", sig("start"))
        await eventually(lambda: len(readings.configs) == 3)
        readings.send.close()
        await eventually(lambda: readings.closed == 3)
        await runtime.call("a", sig("start"))
        assert errors.kinds == ["IdTaken"]


async def test_what_cannot_be_started_or_stopped_is_reported(
    readings: Readings, errors: ErrorRecorder
) -> None:
    """A sensor or a tag that nobody knows; the message lists those that there are."""
    unknown = action_returning(StartSensor(sensor="radar", tag="x"))
    async with Runtime(sensors={"thermo": readings.sense}) as runtime:
        await runtime.start(sensor_agent(count_signals, unknown=unknown), on_error=errors)
        for word in ("unknown", "stop"):
            await runtime.call("a", sig(word))
        assert errors.kinds == ["NotFound", "NotFound"]
        assert "thermo" in errors[0].message
        assert "roof" in errors[1].message


async def test_a_sensor_that_fails_is_reported_and_its_tag_is_free(errors: ErrorRecorder) -> None:
    """What it said before is there, and the agent goes on."""

    async def broken(config: Any) -> AsyncGenerator[Any]:
        yield sig("temp.last")
        raise OSError("no power")

    recorder = SignalRecorder()
    async with Runtime(sensors={"thermo": broken}) as runtime:
        await runtime.start(sensor_agent(recorder, up=count_signals), on_error=errors)
        for _ in range(2):
            await runtime.call("a", sig("start"))
            await runtime.call("a", sig("up"))
            await eventually(lambda: errors and errors[-1].context == "sensor")
        await eventually(lambda: [(one.context, one.kind) for one in errors] == [("sensor", "OSError")] * 2)
        assert recorder.types == ["temp.last"] * 2


async def test_what_is_no_sensor_is_refused(errors: ErrorRecorder) -> None:
    """An async function is, at once; a function that gives something else is, when it is started."""

    async def no_generator(config: Any) -> None: ...

    with pytest.raises(WrongType, match=r"sensors\.thermo"):
        Runtime(sensors={"thermo": no_generator})
    async with Runtime(sensors={"thermo": lambda config: [1, 2]}) as runtime:
        await runtime.start(sensor_agent(count_signals), on_error=errors)
        await runtime.call("a", sig("start"))
        await eventually(lambda: errors.kinds == ["WrongType"])


async def test_a_sensor_waits_while_the_mailbox_is_full(checkpoints: GatedCheckpointStore) -> None:
    """It is not asked for more than the agent can take, and nothing is lost."""
    checkpoints.gate = anyio.Event()
    asked: list[int] = []

    async def fast(config: Any) -> AsyncGenerator[Any]:
        for number in range(20):
            asked.append(number)
            yield sig("temp.now", number)

    async with Runtime(checkpoint_store=checkpoints, sensors={"thermo": fast}) as runtime:
        await runtime.start(sensor_agent(note_data), mailbox=2, save_every=1)
        await runtime.cast("a", sig("start"))
        await checkpoints.entered.wait()
        await anyio.wait_all_tasks_blocked()
        assert len(asked) <= 4
        checkpoints.gate.set()
        server = runtime.whereis("a")
        assert server is not None
        await eventually(lambda: to_plain(server.agent.state.get("noted")) == [*range(20)])


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_a_sensor_ends_with_the_life_of_its_agent(
    end: str, readings: Readings, recorder: SignalRecorder
) -> None:
    """Nobody waits for it, and a restart does not bring it back."""
    async with Runtime(sensors={"thermo": readings.sense}) as runtime:
        await runtime.start(sensor_agent(recorder, crash=crash))
        await runtime.call("a", sig("start"))
        await eventually(lambda: readings.configs)
        if end == "stop":
            with anyio.fail_after(5):
                await runtime.stop("a")
        else:
            await runtime.cast("a", sig("crash"))
        await eventually(lambda: readings.closed == 1)
        await readings.send.send(sig("temp.late"))
        await anyio.wait_all_tasks_blocked()
        assert (recorder, len(readings.configs)) == ([], 1)


# Processes


class Processes:
    """A process that runs until it is ended, or fails."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self.ended: list[Any] = []
        self.gate = anyio.Event()

    async def run(self, config: Any) -> None:
        """Run."""
        self.running.append(to_plain(config))
        try:
            await self.gate.wait()
            if config.get("fails"):
                raise OSError("out of fuel")
        finally:
            self.ended.append(to_plain(config))


async def test_a_process_runs_beside_the_agent_until_it_is_stopped() -> None:
    """Under its tag, or its own name; the agent does not wait for it in the end."""
    processes = Processes()
    routes = {
        "go": action_returning(
            Spawn(target="pump", config={"n": 1}), Spawn(target="pump", config={"n": 2}, tag="b")
        ),
        "end": action_returning(StopChild(tag="pump")),
        "up": count_signals,
    }
    async with Runtime(processes={"pump": processes.run}) as runtime:
        await runtime.start(an_agent("a", routes))
        await runtime.call("a", sig("go"))
        await eventually(lambda: processes.running == [{"n": 1}, {"n": 2}])
        await runtime.call("a", sig("end"))
        await eventually(lambda: processes.ended == [{"n": 1}])
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        with anyio.fail_after(5):
            await runtime.stop("a")
        await eventually(lambda: processes.ended == [{"n": 1}, {"n": 2}])


async def test_a_process_has_its_tag_while_it_runs_and_no_longer(errors: ErrorRecorder) -> None:
    """Then another can be started under it."""
    processes = Processes()
    async with Runtime(processes={"pump": processes.run}) as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(Spawn(target="pump"))}), on_error=errors)
        for _ in range(2):
            await runtime.call("a", sig("go"))
        assert errors.kinds == ["IdTaken"]
        await eventually(lambda: processes.running)
        processes.gate.set()
        await eventually(lambda: len(processes.ended) == 1)
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(processes.ended) == 2)
        assert len(errors) == 1


async def test_a_process_that_fails_is_reported_and_harms_nobody(errors: ErrorRecorder) -> None:
    """Nor does one that nobody knows."""
    processes = Processes()
    processes.gate.set()
    wanted = [Spawn(target="pump", config={"fails": True}), Spawn(target="rocket")]
    async with Runtime(processes={"pump": processes.run}) as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(*wanted), "up": count_signals}), on_error=errors
        )
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(errors) == 2)
        assert sorted((one.context, one.kind) for one in errors) == [
            ("directive", "NotFound"),
            ("process", "OSError"),
        ]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
    with pytest.raises(WrongType, match=r"processes\.pump"):
        Runtime(processes={"pump": lambda config: None})
