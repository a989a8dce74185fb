"""How does a test publish a model? On a server of its own, or through an npm of its own."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from omoide.embedders.models import ModelFile, ModelSource

FOLDER = "package/dist/tiny"


class Site:
    """A web server on loopback: what it has, what was asked of it, and how it misbehaves."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.asked: list[str] = []
        self.cut: int | None = None
        """The bytes after which the connection is dropped."""
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Serve one file, all of it or less."""
        self.asked.append(request.path)
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[: self.cut])


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Site]:
    """A site that is up inside the block."""
    site = Site(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def source(files: dict[str, bytes], url: str) -> ModelSource:
    """What is known of the files beforehand."""
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
        npm_folder=FOLDER,
    )


def package(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
    """An npm package with the files in it, after other members."""
    with tarfile.open(path, "w:gz") as archive:
        for other in others:
            archive.addfile(other, io.BytesIO(bytes(other.size)))
        for name, content in files.items():
            member = tarfile.TarInfo(f"{FOLDER}{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def npm(folder: Path, script: str) -> Path:
    """A program called npm, in a folder of its own."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder
