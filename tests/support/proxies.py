"""A proxy before a server that can lose an answer on its way."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Passes everything on, but for the answers that `lose` counts down."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        """How many answers to requests that hold `marked` are still to be lost."""
        self.marked = b""
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        """One connection; its client sends a request and waits for the answer."""
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            losing = threading.Event()

            def back() -> None:
                with suppress(OSError):
                    while data := server.recv(1 << 16):
                        if losing.is_set():
                            client.shutdown(socket.SHUT_RDWR)
                            return
                        client.sendall(data)

            threading.Thread(target=back, daemon=True).start()
            while data := client.recv(1 << 16):
                if self.lose and self.marked in data:
                    self.lose -= 1
                    losing.set()
                server.sendall(data)
