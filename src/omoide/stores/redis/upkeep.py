"""Does the server keep what it is given, and how is erased content cleared from its files?"""

from __future__ import annotations

import time
from typing import Any

from omoide import ids
from omoide.errors import Invalid, ReadOnly, StoreFailed, WrongVersion
from omoide.retrieval import features
from omoide.stores.findings import Finding
from omoide.stores.records import EraseReceipt
from omoide.stores.redis.connections import Connections
from omoide.stores.redis.keys import Keys
from omoide.stores.settings import Settings

_REWRITE_S = 10.0
_OLDEST = (6, 2)

_LOG = "the append-only file, until it is rewritten: call scrub()"
_SNAPSHOT = "the snapshot (dump.rdb), until the next one: call scrub()"
_FORBIDDEN = "what the server keeps in its files, of which it tells nothing: have it rewrite them"


def enter(server: Connections, key: bytes, schema: str, *, read_only: bool) -> str:
    """Make sure that a store is one that can be understood, a new one if there is none; its life."""
    if not read_only:
        server.ask("HSETNX", key, "schema", schema)
        server.ask("HSETNX", key, "features", str(features.VERSION))
        server.ask("HSETNX", key, "life", ids.uuid7())
    found, life = server.ask("HMGET", key, "schema", "life")
    if found is not None and found.decode() != schema:
        raise WrongVersion(
            server.name, f"has schema {found.decode()}, and this Omoide knows {schema}", "install a newer one"
        )
    return "" if life is None else str(life.decode())


def check_opening(server: Connections, settings: Settings) -> None:
    """Raise when the server is too old, or does not keep what the settings promise."""
    version = _info(server).get("redis_version", "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise StoreFailed(server.name, f"is Redis {version}", "use 6.2 or newer")
    if settings.durability != "power" or settings.read_only:
        return
    log, often = _config(server, "appendonly"), _config(server, "appendfsync")
    if log is not None and (log, often) != ("yes", "always"):
        raise Invalid(
            "durability",
            f"is 'power', and the server has appendonly {log} and appendfsync {often}",
            "run CONFIG SET appendonly yes and CONFIG SET appendfsync always, and write both to redis.conf",
        )


def findings(server: Connections, schema: str) -> list[Finding]:
    """What there is to know about the server's upkeep."""
    info = _info(server)
    version = info.get("redis_version", "unknown")
    found = [
        Finding("version", "ok", f"schema {schema}, the newest known"),
        Finding("server", "ok", f"Redis {version}"),
    ]
    if info.get("role") in ("slave", "replica"):
        found.append(
            Finding("role", "problem", "a replica, which takes no writes: use the primary's address")
        )
    log = _config(server, "appendonly")
    if log is None:
        told = (
            "it does not say how it keeps its data (CONFIG is forbidden): look at what its provider promises"
        )
        return [*found, Finding("persistence", "note", told)]
    return [*found, _persistence(server, log), _eviction(server)]


def _persistence(server: Connections, log: str) -> Finding:
    often = _config(server, "appendfsync")
    remedy = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in redis.conf"
    if log != "yes":
        snapshots = _config(server, "save")
        told = "only in snapshots now and then" if snapshots else "nowhere but in memory"
        return Finding("persistence", "problem", f"changes are kept {told}: {remedy}")
    if often == "always":
        return Finding("persistence", "ok", "every change is on the disk before it is acknowledged")
    if often == "everysec":
        told = "a crash of the machine may lose a second: CONFIG SET appendfsync always keeps it too"
        return Finding("persistence", "note", told)
    return Finding("persistence", "problem", f"the system decides when changes reach the disk: {remedy}")


def _eviction(server: Connections) -> Finding:
    policy = _config(server, "maxmemory-policy")
    if policy in (None, "noeviction"):
        return Finding("memory", "ok", "nothing is thrown away when memory is full")
    told = f"maxmemory-policy is {policy}: memories would be thrown away"
    return Finding("memory", "problem", f"{told}; CONFIG SET maxmemory-policy noeviction, and in redis.conf")


def told(server: Connections, receipt: EraseReceipt) -> EraseReceipt:
    """A receipt that says where erased content may still lie."""
    pending = _pending(server)
    return receipt.replace(scrubbed=not pending, pending=pending)


def scrubbed(server: Connections, receipt: EraseReceipt) -> EraseReceipt:
    """Have the server write its files anew, and wait a moment for it."""
    pending = _pending(server)
    try:
        for what, command in ((_LOG, "BGREWRITEAOF"), (_SNAPSHOT, "BGSAVE")):
            if what in pending:
                pending = _waited(server, command, what, pending)
    except StoreFailed as error:
        return receipt.replace(pending=(f"{'; '.join(pending)} ({error})",))
    return receipt.replace(scrubbed=not pending, pending=pending)


def _waited(server: Connections, command: str, what: str, pending: tuple[str, ...]) -> tuple[str, ...]:
    _settled(server)
    server.ask(command)
    return tuple(one for one in pending if one != what) if _settled(server) else pending


def _settled(server: Connections) -> bool:
    """Whether the server is done with its files within a moment."""
    until = time.monotonic() + min(_REWRITE_S, server.timeout)
    names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    while time.monotonic() < until:
        info = _info(server, "persistence")
        if all(info.get(name, "0") == "0" for name in names):
            return info.get("aof_last_bgrewrite_status", "ok") == "ok"
        time.sleep(0.01)
    return False


def _pending(server: Connections) -> tuple[str, ...]:
    log, snapshots = _config(server, "appendonly"), _config(server, "save")
    if log is None:
        return (_FORBIDDEN,)
    return tuple(what for what, there in ((_LOG, log == "yes"), (_SNAPSHOT, bool(snapshots))) if there)


def sizes(server: Connections, keys: Keys) -> dict[str, Any]:
    """How far the log of a namespace goes, and how much memory the server uses."""
    last = server.ask("HGET", keys("meta"), "seq")
    used = _info(server, "memory").get("used_memory", "0")
    return {"last_seq": int(last or 0), "size_bytes": int(used)}


def _config(server: Connections, name: str) -> str | None:
    """A setting of the server, if it tells."""
    try:
        found = server.client.config_get(name)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server does not tell
        del error
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value.decode() if isinstance(value, bytes) else value


def _info(server: Connections, *section: str) -> dict[str, str]:
    """What the server says of itself, as far as it does."""
    try:
        raw = server.ask("INFO", *section)
    except ReadOnly:  # a user who may not ask
        return {}
    if isinstance(raw, dict):  # the client has read it
        return {str(name): str(value) for name, value in raw.items()}
    lines = raw.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
