"""Run a query, or parse a file, in a process of its own, which can be stopped.

The process holds nothing but the graphs of the query or the file, inherits no environment, and is limited in
time and memory. It is killed when the time is over or the caller is cancelled; its result comes back as data.
Input that ends the process, such as terms nested deeply enough to overflow its stack, is an error here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from shutil import copyfileobj
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import IO, Any, cast

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from omoide.core.value import check_count
from omoide.errors import Invalid, InvalidQuery, InvalidRDF, QueryStopped, StoreFailed
from omoide.graph import worker
from omoide.graph.backend import check_timeout, prepare_query
from omoide.graph.results import Answer, load_oxigraph, read_results, read_triples, syntax_problem
from omoide.graph.sparql import BoundQuery

NAME = "isolated query"
MAX_BYTES = 64 << 20
PARSE_MEMORY_MB = 1024
PARSE_SECONDS = 60
"""Time for a file, besides one second for each MiB of it."""
_EXPANSION = 32
"""Size of the statements of a file, relative to the file: prefixes and nesting are written out."""

_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # what Python itself may need to start
_MIN_MEMORY_MB = 64


async def run_in_process(
    nquads: bytes,
    query: str,
    *,
    default_graphs: Sequence[str],
    named_graphs: Sequence[str] = (),
    bindings: Mapping[str, Any] = {},
    limit: int = 10_000,
    timeout: float = 30.0,
    memory_mb: int = 1024,
) -> Answer:
    """Return the result of a query over N-Quads, computed in a separate process.

    Args:
        nquads: data to query.
        query: SPARQL query text.
        default_graphs: graphs that are merged into the default graph.
        named_graphs: graphs that the query may address with GRAPH.
        bindings: values for variables of the query.
        limit: maximum number of rows or triples.
        timeout: seconds after which the process is killed.
        memory_mb: address space of the process in MiB.

    Raises:
        InvalidQuery: the query cannot be parsed.
        QueryStopped: the query exceeds a limit.
    """
    bound, seconds = prepare_query(query, bindings, limit), check_timeout(timeout)
    if check_count(memory_mb, "memory_mb") < _MIN_MEMORY_MB:
        raise Invalid("memory_mb", f"is {memory_mb}", f"pass {_MIN_MEMORY_MB} or more")
    head = {
        "query": bound.text,
        "form": bound.form,
        "default_graphs": list(default_graphs),
        "named_graphs": list(named_graphs),
        "limit": limit + 1,
        "memory": memory_mb << 20,
        "seconds": ceil(seconds) + 1,
        "packages": _packages(),
    }
    process = await _start_process()
    try:
        query_process = _QueryProcess(process)
        with anyio.move_on_after(seconds) as cancel_scope:
            await query_process.communicate([msgspec.json.encode(head), b"\n", nquads])
        if cancel_scope.cancelled_caught:
            raise QueryStopped(NAME, f"took longer than {seconds:g} s", "ask for less, or allow more time")
        return query_process.answer(bound, limit)
    finally:
        await _stop_process(process)


def parse_in_process(
    name: str, source: IO[bytes], media_type: str, *, seconds: int = PARSE_SECONDS
) -> IO[bytes]:
    """Return the statements of a file as N-Quads, parsed in a separate process; close the returned file.

    Statements about statements are left out, so that no term of the result contains another one.

    Args:
        name: name of the file in errors.
        source: RDF; all of it is read.
        media_type: media type of its format.
        seconds: time for the process, besides one second for each MiB.

    Raises:
        InvalidRDF: the file cannot be parsed, or exceeds a limit.
    """
    with TemporaryFile() as request, TemporaryFile() as complaint:
        head = {"format": media_type, "memory": PARSE_MEMORY_MB << 20, "packages": _packages()}
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        seconds += size >> 20
        head |= {"seconds": seconds, "output": MAX_BYTES + _EXPANSION * size}
        request.write(msgspec.json.encode(head) + b"\n")
        copyfileobj(source, cast("IO[bytes]", request))
        request.seek(0)
        statements = TemporaryFile()  # noqa: SIM115 - closed by the caller
        try:
            status = _run_to_end(request, statements, complaint, 2 * seconds)
            complaint.seek(0)
            _check_parsed(name, status, complaint.read(10_000))
            statements.seek(0)
        except BaseException:
            statements.close()
            raise
        return cast("IO[bytes]", statements)


def _run_to_end(stdin: Any, stdout: Any, stderr: Any, timeout: float) -> int | None:
    """Run the worker with these files; return its exit status, None if it took too long."""
    command, environment = _command()
    try:
        process = Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment)
    except OSError as error:
        raise StoreFailed("parser", f"could not be started ({error})", "try again") from error
    with process:
        try:
            return process.wait(timeout)
        except TimeoutExpired:
            return None
        finally:
            process.kill()


def _check_parsed(name: str, status: int | None, complaint: bytes) -> None:
    """Raise the error that the exit status of a parser stands for."""
    match status:
        case 0:
            return
        case worker.SYNTAX_ERROR:
            told = msgspec.json.decode(complaint)
            place = f"{name} line {told['line']}" if told["line"] else name
            raise InvalidRDF(
                place, f"cannot be read ({told['problem']})", "correct the file, or name its format"
            )
        case worker.OUT_OF_MEMORY:
            raise InvalidRDF(name, "has a value of more than 16 MiB, or needs too much memory", "split it")
        case worker.OUTPUT_TOO_LARGE:
            raise InvalidRDF(name, "is too large when prefixes are written out", "split it")
        case None:
            raise InvalidRDF(name, "takes too long to read", "split it")
        case _ if b"memory allocation" in complaint:
            raise InvalidRDF(name, "needs too much memory to read", "split it, or nest less deeply")
        case _:
            raise InvalidRDF(name, f"stopped its parser ({status})", "nest less deeply")


class _QueryProcess:
    """Exchange data with a worker process and interpret its output."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stdout, self._stderr = bytearray(), bytearray()

    async def communicate(self, chunks: Sequence[bytes]) -> None:
        """Write the input, read all output, and wait for the process to end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_stdin, chunks)
            tasks.start_soon(self._read_stream, self._process.stdout, self._stdout)
            tasks.start_soon(self._read_stream, self._process.stderr, self._stderr)
        await self._process.wait()

    def answer(self, bound: BoundQuery, limit: int) -> Answer:
        """Return the result, or raise the error that the exit status stands for."""
        status = self._process.returncode
        complaint = self._stderr.decode(errors="replace")
        if len(self._stdout) > MAX_BYTES:
            raise QueryStopped(NAME, f"found more than {MAX_BYTES} bytes", "ask for less, or use LIMIT")
        if status == worker.SYNTAX_ERROR:
            raise InvalidQuery(syntax_problem(complaint), "see the SPARQL 1.1 query language")
        if status == worker.OUT_OF_MEMORY or "memory allocation" in complaint:
            raise QueryStopped(NAME, "needed too much memory", "ask for less, or allow more")
        if status != 0:
            raise QueryStopped(NAME, f"brought its process down ({status})", "ask in a simpler way")
        try:
            if bound.form in ("SELECT", "ASK"):
                return read_results(bytes(self._stdout), limit, bound.hidden)
            return read_triples(bytes(self._stdout), limit)
        except Invalid as error:
            raise StoreFailed(NAME, f"gave no answer ({error.problem})", "try again") from error

    async def _write_stdin(self, chunks: Sequence[bytes]) -> None:
        stream = self._process.stdin
        if stream is None:
            return
        try:
            for part in chunks:
                await stream.send(part)
            await stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the process ended; its exit status says why

    async def _read_stream(self, stream: ByteReceiveStream | None, buffer: bytearray) -> None:
        if stream is None:
            return
        async for part in stream:
            buffer += part
            if len(buffer) > MAX_BYTES:
                self._process.kill()
                return


async def _start_process() -> Process:
    command, environment = _command()
    try:
        return await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)
    except OSError as error:
        raise StoreFailed(NAME, f"could not be started ({error})", "ask without isolation") from error


def _command() -> tuple[list[str], dict[str, str]]:
    """Return the command line of the worker, and its environment."""
    if not sys.executable:
        raise StoreFailed(NAME, "has no Python to run in", "ask without isolation")
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return [sys.executable, "-I", "-S", str(Path(worker.__file__))], environment


def _packages() -> str:
    """Return the folder from which the worker imports the graph engine."""
    return str(Path(load_oxigraph().__file__).parent.parent)


async def _stop_process(process: Process) -> None:
    """Kill the process if it runs and release its pipes, even if the caller was cancelled."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.aclose()
