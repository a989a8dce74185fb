"""How is a query stopped that would run for ever?

By giving it a process of its own, which holds nothing but the graphs it is asked about, nothing of our
environment, and has limits of time and memory. It is ended when the time is over or the caller goes away, and
what it found comes back as data.

"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from omoide.core.value import check_count
from omoide.errors import Invalid, InvalidQuery, QueryStopped, StoreFailed
from omoide.graph import worker
from omoide.graph.backend import asked, positive
from omoide.graph.results import Answer, misread, oxigraph, read_results, read_triples
from omoide.graph.sparql import Bound

NAME = "isolated query"
MAX_BYTES = 64 << 20

_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # what Python itself may need to start
_AT_LEAST = 64


async def run(
    nquads: bytes,
    query: str,
    *,
    default_graphs: Sequence[str],
    named_graphs: Sequence[str] = (),
    bindings: Mapping[str, Any] = {},
    limit: int = 10_000,
    timeout: float = 30.0,  # noqa: ASYNC109 - it is the process that is stopped
    memory_mb: int = 1024,
) -> Answer:
    """What a query finds in some N-Quads, found by a process of its own."""
    bound, seconds = asked(query, bindings, limit), positive(timeout)
    if check_count(memory_mb, "memory_mb") < _AT_LEAST:
        raise Invalid("memory_mb", f"is {memory_mb}", f"pass {_AT_LEAST} or more")
    head = {
        "query": bound.text,
        "form": bound.form,
        "default_graphs": list(default_graphs),
        "named_graphs": list(named_graphs),
        "limit": limit + 1,
        "memory": memory_mb << 20,
        "seconds": ceil(seconds) + 1,
        "packages": str(Path(oxigraph().__file__).parent.parent),
    }
    process = await _started()
    try:
        said = _Said(process)
        with anyio.move_on_after(seconds) as time:
            await said.listen([msgspec.json.encode(head), b"\n", nquads])
        if time.cancelled_caught:
            raise QueryStopped(NAME, f"took longer than {seconds:g} s", "ask for less, or allow more time")
        return said.answer(bound, limit)
    finally:
        await _ended(process)


class _Said:
    """What a process was told, and what it said."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._out, self._err = bytearray(), bytearray()

    async def listen(self, told: Sequence[bytes]) -> None:
        """Tell the process something, and hear it out."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell, told)
            tasks.start_soon(self._hear, self._process.stdout, self._out)
            tasks.start_soon(self._hear, self._process.stderr, self._err)
        await self._process.wait()

    def answer(self, bound: Bound, limit: int) -> Answer:
        """The answer, or the error that the way the process ended means."""
        status = self._process.returncode
        complaint = self._err.decode(errors="replace")
        if len(self._out) > MAX_BYTES:
            raise QueryStopped(NAME, f"found more than {MAX_BYTES} bytes", "ask for less, or use LIMIT")
        if status == worker.MISREAD:
            raise InvalidQuery(misread(complaint), "see the SPARQL 1.1 query language")
        if status == worker.OUT_OF_MEMORY or "memory allocation" in complaint:
            raise QueryStopped(NAME, "needed too much memory", "ask for less, or allow more")
        if status != 0:
            raise QueryStopped(NAME, f"brought its process down ({status})", "ask in a simpler way")
        try:
            if bound.form in ("SELECT", "ASK"):
                return read_results(bytes(self._out), limit, bound.hidden)
            return read_triples(bytes(self._out), limit)
        except Invalid as error:
            raise StoreFailed(NAME, f"gave no answer ({error.problem})", "try again") from error

    async def _tell(self, told: Sequence[bytes]) -> None:
        stream = self._process.stdin
        if stream is None:
            return
        try:
            for part in told:
                await stream.send(part)
            await stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it is gone, and how it ended says why

    async def _hear(self, stream: ByteReceiveStream | None, heard: bytearray) -> None:
        if stream is None:
            return
        async for part in stream:
            heard += part
            if len(heard) > MAX_BYTES:
                self._process.kill()
                return


async def _started() -> Process:
    if not sys.executable:
        raise StoreFailed(NAME, "has no Python to run in", "ask without isolation")
    command = [sys.executable, "-I", "-S", str(Path(worker.__file__))]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        return await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=kept)
    except OSError as error:
        raise StoreFailed(NAME, f"could not be started ({error})", "ask without isolation") from error


async def _ended(process: Process) -> None:
    """End a process, whatever happens meanwhile, and leave nothing of it behind."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.aclose()
