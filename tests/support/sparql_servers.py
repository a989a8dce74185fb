"""Two SPARQL servers that share no code, started on loopback."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest

STARTING = 60.0


class Server(NamedTuple):
    """A server, and where it is asked and changed."""

    query_url: str
    update_url: str


@contextmanager
def oxigraph(folder: Path) -> Iterator[Server]:
    """Oxigraph's own server."""
    port = free_port()
    command = [
        _program("oxigraph"),
        "serve",
        "--location",
        str(folder / "data"),
        "--bind",
        f"127.0.0.1:{port}",
    ]
    with _run_server(command, folder, port):
        yield Server(f"http://127.0.0.1:{port}/query", f"http://127.0.0.1:{port}/update")


@contextmanager
def rdflib(folder: Path) -> Iterator[Server]:
    """The server that comes with rdflib; it has another engine and another reader of SPARQL."""
    port = free_port()
    command = [
        _program("rdflib-endpoint"),
        "serve",
        "--enable-update",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with _run_server(command, folder, port):
        yield Server(f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{port}/")


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing: run make setup")
    return found


@contextmanager
def _run_server(command: list[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait(process, port, folder / "log")
        yield
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise AssertionError(f"{process.args!r} did not start: {log.read_text(errors='replace')}")
