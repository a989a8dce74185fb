"""A query in its own process is stopped in time and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pyoxigraph
import pytest

from omoide.errors import Invalid, InvalidQuery, QueryStopped, StoreFailed
from omoide.graph import IRI, sandbox, worker
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.sandbox import run_in_process
from omoide.testing import eventually

NQUADS = "".join(f'<u:s{n}> <u:p> "v{n}" <u:g> .\n' for n in range(300)).encode()
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"

Script = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Put another program in the worker's place; its pid is in the file that is given back."""

    def write(program: str) -> Path:
        pid = tmp_path / "pid"
        path = tmp_path / "script.py"
        path.write_text(f"import os, sys, json\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{program}")
        monkeypatch.setattr(worker, "__file__", str(path))
        return pid

    return write


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def ask(query: str = "SELECT ?s { ?s ?p ?o }", **options: Any) -> Any:
    return await run_in_process(options.pop("nquads", NQUADS), query, default_graphs=["u:g"], **options)


@pytest.mark.parametrize(
    ("query", "bindings"),
    [
        ("SELECT ?s ?o { ?s <u:p> ?o } ORDER BY ?o LIMIT 3", {}),
        ("SELECT ?s ?x { ?s <u:p> ?x }", {"x": "v1"}),
        ("SELECT * { { SELECT ?s ?x { ?s <u:p> ?x } } }", {"x": "v1"}),
        ("SELECT (1.5 AS ?d) (1e3 AS ?f) (true AS ?b) ('x'@en AS ?l) (<u:a> AS ?i) ?none {}", {}),
        ("SELECT ?o { ?s <u:p> ?o FILTER(?o = ?x) }", {"x": "a\\u0041"}),
        ("ASK { ?s <u:p> 'v7' }", {}),
        ("ASK { GRAPH ?g { ?s ?p ?o } }", {}),
        ("CONSTRUCT { ?s <u:q> ?o } WHERE { ?s <u:p> ?o FILTER(?o < 'v11') }", {}),
        ("DESCRIBE ?s", {"s": IRI("u:s4")}),
    ],
)
async def test_an_isolated_query_has_the_same_answer(query: str, bindings: dict[str, Any]) -> None:
    """What a query finds does not depend on the process it runs in."""
    graph = OxigraphBackend()
    graph.replace([], NQUADS)
    expected = graph.query(query, default_graphs=["u:g"], bindings=bindings)
    found = await ask(query, bindings=bindings)
    assert (found.kind, found.variables, found.truth) == (expected.kind, expected.variables, expected.truth)
    assert set(found) == set(expected)
    assert not found.truncated


async def test_limits_hold_there_as_well() -> None:
    """An isolated answer is cut at the limit, and says so."""
    for query in ("SELECT ?s { ?s ?p ?o }", "CONSTRUCT WHERE { ?s ?p ?o }"):
        for limit, cut in ((5, True), (300, False)):
            found = await ask(query, limit=limit)
            assert (len(found), found.truncated) == (limit, cut)


async def test_only_what_is_given_is_seen() -> None:
    """The process sees the graphs of the scope and no other, even where it holds more."""
    more = NQUADS + b'<u:x> <u:p> "secret" <u:other> .\n'
    for query in ("SELECT * { ?s ?p ?o }", "SELECT * { GRAPH ?g { ?s ?p ?o } }", "DESCRIBE <u:x>"):
        found = await ask(query, nquads=more)
        assert b"secret" not in found.to_json()


async def test_an_endless_query_is_stopped() -> None:
    """A query that would count for years is ended when its time is over."""
    started = time.monotonic()
    with pytest.raises(QueryStopped, match=r"took longer than 0\.5 s"):
        await ask(ENDLESS, timeout=0.5)
    assert time.monotonic() - started < 20


async def test_a_greedy_query_is_stopped() -> None:
    """A query that needs more memory than it may have is ended, and nobody else is."""
    with pytest.raises(QueryStopped, match="too much memory"):
        await ask("SELECT DISTINCT ?a ?d ?g { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }", limit=10**9, memory_mb=64)


async def test_a_flood_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer larger than allowed is not taken in."""
    monkeypatch.setattr(sandbox, "MAX_BYTES", 100_000)
    with pytest.raises(QueryStopped, match="more than 100000 bytes"):
        await ask("SELECT * { ?a ?b ?c . ?d ?e ?f }", limit=10**9)


async def test_a_wrong_query_is_told_as_that() -> None:
    """A query that cannot be read is an error of the query and not of the process."""
    for query in ("SELECT ?s {", "SELECT ?x { ?s ?p ?o } GROUP BY ?s", "DROP ALL", "SELECT ?s { ?s ?p ?o }}"):
        with pytest.raises(InvalidQuery):
            await ask(query)


@pytest.mark.parametrize(
    ("program", "kind", "problem"),
    [
        ("os.abort()", QueryStopped, "brought its process down"),
        ("os._exit(3)", QueryStopped, "brought its process down"),
        ("os.kill(os.getpid(), 11)", QueryStopped, "brought its process down"),
        ("raise MemoryError", QueryStopped, "brought its process down"),
        ("sys.exit(65)", QueryStopped, "too much memory"),
        ("pass", StoreFailed, "gave no answer"),
        ("print('hello')", StoreFailed, "gave no answer"),
        ("print('{}')", StoreFailed, "gave no answer"),
    ],
)
async def test_a_process_that_fails_is_told(
    script: Script, program: str, kind: type[Exception], problem: str
) -> None:
    """However the process ends, its end is an error of ours, though it was sent more than it took."""
    script(program)
    with pytest.raises(kind, match=problem):
        await ask(nquads=NQUADS * 200)


async def test_nothing_of_ours_is_passed_on(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process gets none of our variables, none of our paths, and nothing of Omoide."""
    monkeypatch.setenv("OMOIDE_SECRET", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    script(
        "seen = [*os.environ, *os.environ.values(), *sys.path, *sys.modules]\n"
        "cells = [{'s': {'type': 'literal', 'value': each}} for each in seen]\n"
        "print(json.dumps({'head': {'vars': ['s']}, 'results': {'bindings': cells}}))"
    )
    seen = (await ask()).values("s")
    assert "json" in seen
    assert not [each for each in seen if "s3cret" in each or "nowhere" in each or each.startswith("omoide")]
    assert not [each for each in seen if each.startswith(("PATH", "HOME", "OMOIDE", "PYTHON"))]


async def test_who_is_cancelled_leaves_no_process(script: Script) -> None:
    """When the caller is cancelled the process is ended before the cancellation goes on."""
    pid = script("import time\nwhile True: time.sleep(1)")
    with anyio.move_on_after(30) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: pid.exists() and pid.read_text() != "", timeout=30.0)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert is_gone(int(pid.read_text()))


async def test_who_runs_out_of_time_leaves_no_process(script: Script) -> None:
    """A process that was stopped is gone, and was waited for, even if it does not listen to signals."""
    pid = script("import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(1)")
    with pytest.raises(QueryStopped):
        await ask(timeout=3.0)
    assert is_gone(int(pid.read_text()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of open files")
async def test_no_file_stays_open() -> None:
    """After queries that ended well, badly and not at all, as many files are open as before."""

    async def several() -> None:
        await ask()
        for query, options in (("SELECT ?s {", {}), (ENDLESS, {"timeout": 0.2})):
            with pytest.raises((InvalidQuery, QueryStopped)):
                await ask(query, **options)

    await several()
    before = len(os.listdir("/proc/self/fd"))
    await several()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_many_run_at_once() -> None:
    """Several isolated queries run beside each other, each with its own answer."""
    found: dict[int, Any] = {}

    async def one(n: int) -> None:
        found[n] = (await ask("SELECT ?s { ?s ?p ?x }", bindings={"x": f"v{n}"})).values("s")

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(one, n)
    assert found == {n: (f"u:s{n}",) for n in range(6)}


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is one of POSIX systems")
def test_a_process_without_its_caller_ends_by_itself() -> None:
    """When the caller is killed, the system ends the query once it has used up its time."""
    head = {
        "query": ENDLESS,
        "form": "SELECT",
        "default_graphs": ["u:g"],
        "named_graphs": [],
        "limit": 1,
        "memory": 1 << 30,
        "seconds": 1,
        "packages": str(Path(pyoxigraph.__file__).parent.parent),
    }
    command = [sys.executable, "-I", "-S", str(worker.__file__)]
    told = json.dumps(head).encode() + b"\n" + NQUADS
    done = subprocess.run(command, input=told, capture_output=True, timeout=60, check=False)
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": -1}, {"memory_mb": 1}, {"memory_mb": -1}, {"limit": 0}]
)
async def test_limits_make_sense(options: dict[str, Any]) -> None:
    """No time, no memory and no rows are refused before a process is started."""
    with pytest.raises(Invalid):
        await ask(**options)


async def test_a_machine_without_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, the error says to ask without isolation."""
    for executable in ("", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(StoreFailed, match="without isolation"):
            await ask()
