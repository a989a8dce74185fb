"""Connect to a Redis server, run Lua scripts on it, and map its errors.

`READ_SCRIPT` runs several commands at one moment. `COMMIT_SCRIPT` changes everything or nothing: it first
checks the expectations and the types of all keys, and only then writes, because Redis has no rollback. It
numbers the changes as it writes them to the log, so that their order is that of the commits.

Both take a job in MessagePack as `ARGV[1]`. Keys are indexes into `KEYS`, and bytes are negative indexes into
`ARGV`: the unpacker of Redis cannot tell bytes from text.

Threads share a pool of connections; a forked process has its own. Reads are repeated when a connection
breaks, and so are commits: the server knows each by writer and number, and runs it at most once.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any
from weakref import WeakSet

from redis import BlockingConnectionPool, Redis, exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from omoide import ids
from omoide.errors import (
    Busy,
    Closed,
    Corrupted,
    DiskFull,
    ReadOnly,
    StoreFailed,
    StoreUnreachable,
    Uncertain,
)
from omoide.stores.records import REPAIR_REMEDY
from omoide.stores.redis.layout import pack

CLIENT_ERRORS = (
    exceptions.RedisError,
    exceptions.RedisClusterException,
    exceptions.ChildDeadlockedError,
    OSError,
)
"""Everything that the client may raise."""

AUTH_ERRORS = (exceptions.AuthenticationError, exceptions.AuthorizationError)

_CODE_BY_TYPE: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.AskError, "MOVED"),
)
"""Error codes that the client removes from a message when it raises a class of its own."""

_ERROR_BY_CODE: dict[str, tuple[type[StoreFailed], str, str]] = {
    "OOM": (
        DiskFull,
        "has no memory left",
        "erase something, or raise maxmemory (CONFIG SET maxmemory …); nothing was lost",
    ),
    "READONLY": (ReadOnly, "is a replica, which cannot be written to", "use the address of the primary"),
    "MISCONF": (
        DiskFull,
        "refuses writes, because it cannot save them to its disk",
        "free space where it keeps its files, and look into its log",
    ),
    "LOADING": (Busy, "is still loading its data", "try again in a moment"),
    "BUSY": (Busy, "is busy with a script", "try again in a moment"),
    "MASTERDOWN": (Busy, "has lost its primary", "try again, or use the address of the new primary"),
    "CLUSTERDOWN": (Busy, "is a cluster of which a part is away", "try again when it is whole again"),
    "TRYAGAIN": (Busy, "is a cluster that moves keys", "try again in a moment"),
    "NOREPLICAS": (Busy, "has too few replicas to take writes", "try again when they are back"),
    "MOVED": (StoreFailed, "is one node of a cluster", "open it with ?cluster=yes"),
    "CROSSSLOT": (
        StoreFailed,
        "is a cluster, which cannot change several namespaces at once",
        "write one namespace at a time",
    ),
    "WRONGTYPE": (
        Corrupted,
        "holds something else under a key of ours",
        "let nobody else write under its prefix, or choose another with ?prefix=",
    ),
    "NOPERM": (
        ReadOnly,
        "does not allow this user the command",
        "give the user the rights, see docs/redis.md",
    ),
}
"""Error class, problem and remedy of each error code."""


def map_error(error: Exception, name: str) -> StoreFailed:
    """Return the Omoide error for one of the client."""
    if isinstance(error, exceptions.TimeoutError):
        return StoreUnreachable(
            name, "does not answer in time", "try again, or open it with a longer timeout"
        )
    word = _error_code(error)
    if word in _ERROR_BY_CODE:
        kind, problem, remedy = _ERROR_BY_CODE[word]
        return kind(name, problem, remedy)
    if isinstance(error, AUTH_ERRORS) or word in ("NOAUTH", "WRONGPASS"):
        return StoreUnreachable(
            name, "refuses the name or the password", "write redis://user:password@host with the right ones"
        )
    if isinstance(error, (exceptions.ConnectionError, OSError)):
        problem = f"cannot be reached ({_reason(error)})"
        return StoreUnreachable(name, problem, "check that it runs and the address")
    return StoreFailed(name, f"failed ({error})", "`omoide doctor` says more")


def uncertain_commit_error(name: str) -> Uncertain:
    """Return the error for a commit that was sent and not answered."""
    return Uncertain(
        name,
        "was lost while it was to keep something",
        "repeat it with the same id or idempotency key: it is kept once",
    )


def was_sent(error: Exception) -> bool:
    """Return whether a command may have reached the server before an error."""
    return not isinstance(error, AUTH_ERRORS) and "connecting to" not in str(error)


def _error_code(error: Exception) -> str:
    """Return the error code of a message; from inside a script it follows `ERR`."""
    for kind, word in _CODE_BY_TYPE:
        if isinstance(error, kind):
            return word
    words = str(error).split(" ")
    return words[1] if words[0] == "ERR" and len(words) > 1 else words[0]


def _reason(error: Exception) -> str:
    """Return the message of the system, without the address."""
    cause = error.__cause__ or error.__context__ or error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


@contextmanager
def map_errors(name: str) -> Iterator[None]:
    """Map errors of the client that are raised in the block."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise map_error(error, name) from error


READ_SCRIPT = """
local job, out = cmsgpack.unpack(ARGV[1]), {}

local function many(key, fields)
  local found = {}
  for at = 1, #fields, 1000 do
    local some = redis.call('HMGET', key, unpack(fields, at, math.min(at + 999, #fields)))
    for i = 1, math.min(1000, #fields - at + 1) do found[at + i - 1] = some[i] end
  end
  return found
end

for i, ask in ipairs(job) do
  local verb, key = ask[1], KEYS[ask[2]]
  if verb == 'ENTRIES' then
    local ids = redis.call('ZRANGE', key, 0, -1)
    for at, member in ipairs(ids) do ids[at] = string.sub(member, 17) end
    out[i] = {ids, many(KEYS[ask[3]], ids)}
  elseif verb == 'CHANGED' then
    local ids = redis.call('ZRANGEBYSCORE', key, '(' .. ask[5], '+inf')
    if #ids > ask[6] then
      out[i] = {ids}
    else
      out[i] = {ids, many(KEYS[ask[3]], ids), many(KEYS[ask[4]], ids)}
    end
  else
    local args = {}
    for at = 3, #ask do args[at - 2] = type(ask[at]) == 'number' and ARGV[-ask[at]] or ask[at] end
    out[i] = redis.call(verb, key, unpack(args))
  end
end
return out
"""

COMMIT_SCRIPT = """
local job = cmsgpack.unpack(ARGV[1])
local number, done = job.number, KEYS[job.done]

local function pad(n) return string.format('%016.0f', n) end
local function is_integer(value) return not value or string.find(value, '^-?%d+$') ~= nil end
local function text(arg) return type(arg) == 'number' and ARGV[-arg] or arg end

-- A writer that got no answer asks again with the same number: what is done is not done twice.
local last = redis.call('GET', done)
if last then
  local before, result = string.match(last, '^(%d+) (.*)$')
  if tonumber(before) == number then return {'done', result} end
  if tonumber(before) > number then return {'late'} end
end

if job.store then
  local schema = redis.call('HGET', KEYS[job.store], 'schema')
  if schema and (tonumber(schema) or math.huge) > job.schema then return {'schema', schema} end
end
for _, namespace in ipairs(job.namespaces) do
  local holder = redis.call('GET', KEYS[namespace.lock])
  if holder and holder ~= job.writer then return {'wait'} end
  for _, check in ipairs(namespace.checks) do
    local value, expected = redis.call('HGET', KEYS[check[1]], text(check[2])) or '', text(check[3])
    if string.sub(value, 1, math.max(16, #expected)) ~= expected then return {'changed'} end
  end
  for _, expected in ipairs(namespace.types) do
    local actual = redis.call('TYPE', KEYS[expected[1]]).ok
    if actual ~= 'none' and actual ~= expected[2] then return {'broken', KEYS[expected[1]]} end
  end
end
if job.check_only == 1 then return {'done', ''} end
for _, namespace in ipairs(job.namespaces) do
  local counters = redis.call('HMGET', KEYS[namespace.meta], 'seq', 'tick', 'vectors', 'stones')
  for _, counter in ipairs(counters) do
    if not is_integer(counter) then return {'damaged', KEYS[namespace.meta]} end
  end
  if #namespace.log_records > 0 then
    local last = redis.call('XREVRANGE', KEYS[namespace.log], '+', '-', 'COUNT', 1)[1]
    if last and tonumber(string.match(last[1], '^%d+')) > tonumber(counters[1] or '0') then
      return {'damaged', KEYS[namespace.meta]}
    end
  end
end

local first_numbers = {}
for _, namespace in ipairs(job.namespaces) do
  local meta = KEYS[namespace.meta]
  local counters = redis.call('HMGET', meta, 'seq', 'tick', 'life')
  local seq, tick = tonumber(counters[1] or '0'), tonumber(counters[2] or '0') + 1

  local function filled(arg)
    if type(arg) ~= 'table' then return text(arg) end
    local whole = ''
    for _, piece in ipairs(arg) do
      if type(piece) ~= 'number' or piece < 0 then
        piece = text(piece)
      else
        piece = pad(piece == 0 and tick or seq + piece)
      end
      whole = whole .. piece
    end
    return whole
  end

  local function act(command)
    local verb, key = command[1], KEYS[command[2]]
    if verb == 'ADD_MEMBER' then
      local field = text(command[3])
      local value = redis.call('HGET', key, field)
      local rest = value and string.sub(value, 17) or '\\31'
      redis.call('HSET', key, field, pad(tick) .. rest .. text(command[4]) .. '\\31')
    elseif verb == 'REMOVE_MEMBER' then
      local field = text(command[3])
      local value = redis.call('HGET', key, field)
      local from, to = string.find(value or '', '\\31' .. text(command[4]) .. '\\31', 17, true)
      if from then
        local rest = string.sub(value, 17, from) .. string.sub(value, to + 1)
        if rest == '\\31' then
          redis.call('HDEL', key, field)
        else
          redis.call('HSET', key, field, pad(tick) .. rest)
        end
      end
    elseif verb == 'HSET_MAX' then
      if tonumber(command[4]) > (tonumber(redis.call('HGET', key, command[3]) or '-1') or -1) then
        redis.call('HSET', key, command[3], command[4])
      end
    else
      local args = {}
      for at = 3, #command do args[at - 2] = filled(command[at]) end
      -- A damaged counter of uses starts again: an error here would leave half of the commit.
      if verb == 'HINCRBY' and not is_integer(redis.call('HGET', key, args[1])) then
        redis.call('HDEL', key, args[1])
      end
      redis.call(verb, key, unpack(args))
    end
  end

  -- What only frees memory goes first: the server lets it pass when memory is full, and then the rest too.
  for _, command in ipairs(namespace.deletions) do act(command) end
  redis.call('HSET', meta, 'seq', pad(seq + #namespace.log_records), 'tick', pad(tick))
  if not counters[3] then redis.call('HSET', meta, 'life', job.life) end
  for at, record in ipairs(namespace.log_records) do
    redis.call('XADD', KEYS[namespace.log], string.format('%.0f-0', seq + at), 'c', text(record))
  end
  for _, command in ipairs(namespace.commands) do act(command) end
  if job.unlock == 1 then redis.call('DEL', KEYS[namespace.lock]) end
  first_numbers[#first_numbers + 1] = pad(seq)
end
redis.call('SET', done, string.format('%.0f ', number) .. table.concat(first_numbers, ' '), 'PX', job.keep)
return {'done', table.concat(first_numbers, ' ')}
"""

UNLOCK_SCRIPT = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""

UNSEALED_FIELDS_SCRIPT = """
local at, seal, count = tonumber(ARGV[1]), ARGV[2], 0
local page = redis.call('HSCAN', KEYS[1], ARGV[3], 'COUNT', 1000)
for i = 2, #page[2], 2 do
  if string.sub(page[2][i], at, at) ~= seal then count = count + 1 end
end
return {page[1], count}
"""
"""Counts the values of one page of a hash that do not have a byte at a position."""

UNSEALED_ITEMS_SCRIPT = """
local count = 0
for _, key in ipairs(KEYS) do
  for start = 0, redis.call('LLEN', key) - 1, 1000 do
    for _, item in ipairs(redis.call('LRANGE', key, start, start + 999)) do
      if string.sub(item, 1, 1) ~= ARGV[1] then count = count + 1 end
    end
  end
end
return count
"""
"""Counts the items of lists that do not begin with a byte."""


Command = Sequence[Any]
"""Verb, key and arguments; further keys are `KeyArgument`s."""

_POOL_SIZE = 64
_MAX_ATTEMPTS = 4
_RETRY_DELAY_S = 0.02
_COMMIT_RECORD_TTL_S = 600.0

_log = logging.getLogger("omoide")


class KeyArgument(bytes):
    """A key among the arguments of a command."""


class CommitWriter:
    """The identity of a sequence of numbered commits."""

    def __init__(self) -> None:
        self.token = ids.uuid7()
        self.number = 0


class RedisConnections:
    """The connections of one process to a server."""

    def __init__(
        self, url: str, name: str, *, timeout: float, cluster: bool = False, options: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.cluster = cluster
        self.closed = False
        self.epoch = 0
        """Grows when a connection broke: another server may have taken over, with fewer commits."""
        arguments: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, 10.0),
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": self._on_connect,
            **options,
        }
        self._seen_connections: WeakSet[Any] = WeakSet()
        self.client: Any
        with map_errors(name):
            if cluster:
                self.client = RedisCluster.from_url(url, **arguments)
            else:
                pool = BlockingConnectionPool.from_url(
                    url, max_connections=_POOL_SIZE, timeout=timeout, **arguments
                )
                self.client = Redis(connection_pool=pool)
        self.reset()

    def _on_connect(self, connection: Any) -> None:
        """Count an epoch for a new connection: the client replaces broken ones silently."""
        if not self.cluster:  # whose client has done the handshake already
            connection.on_connect()
        if self.cluster or connection in self._seen_connections:
            self.epoch += 1
        self._seen_connections.add(connection)

    def reset(self) -> None:
        """Forget the writers, as a forked process must: commit numbers are not shared."""
        self._writers: deque[CommitWriter] = deque()

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        with map_errors(self.name):
            self.client.close()
            if not self.cluster:  # a pool that is given to a client is not closed with it
                self.client.connection_pool.disconnect()

    @contextmanager
    def writer(self) -> Iterator[CommitWriter]:
        """Lend a writer to one transaction at a time."""
        try:
            writer = self._writers.pop()
        except IndexError:
            writer = CommitWriter()
        try:
            yield writer
        finally:
            self._writers.append(writer)

    def read(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands on keys of one namespace at one moment, and return their replies."""
        keys: dict[bytes, int] = {}
        job = [
            [command[0], _key_index(keys, command[1]), *(_to_argument(keys, part) for part in command[2:])]
            for command in commands
        ]
        replies: list[Any] = self._run_script(READ_SCRIPT, [*keys], _script_args(job))
        return replies

    def commit(self, writer: CommitWriter, keys: Sequence[bytes], job: dict[str, Any]) -> list[bytes]:
        """Run a commit job at most once, and return its reply."""
        writer.number += 1
        job.update(
            number=writer.number,
            writer=writer.token,
            life=ids.uuid7(),
            keep=int(1_000 * max(_COMMIT_RECORD_TTL_S, 4 * self.timeout)),
        )
        reply: list[bytes] = self._run_script(
            COMMIT_SCRIPT, keys, _script_args(job), is_write=not job["check_only"]
        )
        return reply

    def scan(self, pattern: str) -> list[bytes]:
        """Return the keys that match a pattern, each once."""
        found = self._retry(lambda: [*self.client.scan_iter(match=pattern, count=1_000)], is_write=False)
        return sorted({*found})

    def integer(self, raw: bytes | None, kind: str, default: int = 0) -> int:
        """Return a stored number; raise `Corrupted` if it is damaged."""
        try:
            return default if raw is None else int(raw)
        except ValueError as error:
            raise Corrupted(self.name, f"has a damaged {kind}", REPAIR_REMEDY) from error

    def acquire_lock(self, key: bytes, writer: CommitWriter, ttl_ms: int) -> bool:
        """Take or keep a lock for a writer, and return whether it has it."""
        with map_errors(self.name):
            return bool(self.client.set(key, writer.token, nx=True, px=ttl_ms)) or (
                self.client.get(key) == writer.token.encode()
            )

    def release_lock(self, key: bytes, writer: CommitWriter) -> None:
        """Release a lock, if the writer still has it."""
        self.delete_if_equal(key, writer.token.encode())

    def delete_if_equal(self, key: bytes, value: bytes) -> None:
        """Delete a key, if it still has this value."""
        self._run_script(UNLOCK_SCRIPT, [key], [value])

    def count_unsealed_fields(self, key: bytes, at: int, seal: bytes) -> int:
        """Return the number of values of a hash that do not have a byte at a position, from 0."""
        cursor, total = b"0", 0
        while True:
            args = [str(at + 1).encode(), seal, cursor]
            cursor, count = self._run_script(UNSEALED_FIELDS_SCRIPT, [key], args)
            total += int(count)
            if cursor == b"0":
                return total

    def count_unsealed_items(self, keys: Sequence[bytes], seal: bytes) -> int:
        """Return the number of items of lists that do not begin with a byte."""
        return int(self._run_script(UNSEALED_ITEMS_SCRIPT, keys, [seal])) if keys else 0

    def execute(self, *command: Any) -> Any:
        """Run one command that may be repeated, and return its reply."""
        return self._retry(lambda: self.client.execute_command(*command), is_write=False)

    def _run_script(
        self, script: str, keys: Sequence[bytes], args: Sequence[bytes], *, is_write: bool = False
    ) -> Any:
        def run() -> Any:
            try:
                return self.client.evalsha(_script_digest(script), len(keys), *keys, *args)
            except exceptions.NoScriptError:
                return self.client.eval(script, len(keys), *keys, *args)

        return self._retry(run, is_write=is_write)

    def _retry(self, run: Callable[[], Any], *, is_write: bool) -> Any:
        """Repeat a call when a connection breaks, but not after a timeout: the server is too slow already."""
        sent, left = False, _MAX_ATTEMPTS
        while True:
            if self.closed:
                raise Closed(self.name, "is closed", "open it again")
            try:
                return run()
            except (exceptions.TimeoutError, exceptions.ConnectionError, OSError) as error:
                self.epoch += 1
                left -= 1
                sent = sent or was_sent(error)
                if left and not isinstance(error, (exceptions.TimeoutError, *AUTH_ERRORS)):
                    _log.info("%s: connection lost (%s), trying again", self.name, type(error).__name__)
                    time.sleep(_RETRY_DELAY_S * (_MAX_ATTEMPTS - left))
                    continue
                raise (
                    uncertain_commit_error(self.name) if is_write and sent else map_error(error, self.name)
                ) from error
            except CLIENT_ERRORS as error:
                raise map_error(error, self.name) from error


def _key_index(keys: dict[bytes, int], key: bytes) -> int:
    return keys.setdefault(bytes(key), len(keys) + 1)


def _to_argument(keys: dict[bytes, int], part: Any) -> Any:
    return _key_index(keys, part) if isinstance(part, KeyArgument) else part


def _script_args(job: Any) -> list[bytes]:
    """Return a packed job, followed by the bytes that it refers to."""
    blobs: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            blobs.append(value)
            return -1 - len(blobs)
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value

    packed = pack(plain(job))
    return [packed, *blobs]


def _script_digest(script: str) -> str:
    found = _DIGEST_CACHE.get(script)
    if found is None:
        found = _DIGEST_CACHE[script] = sha1(script.encode(), usedforsecurity=False).hexdigest()
    return found


_DIGEST_CACHE: dict[str, str] = {}
