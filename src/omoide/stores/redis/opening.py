"""Which server does a URL mean, and which store on it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlunsplit

from omoide.errors import Invalid, MissingExtra
from omoide.stores.addresses import Address, embedder_for
from omoide.stores.local import LocalStore
from omoide.stores.masking import masked
from omoide.stores.redis import keys
from omoide.stores.settings import Settings

if TYPE_CHECKING:
    from omoide.stores.redis.connections import Connections

OPTIONS: tuple[str, ...] = ("prefix", "cluster", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname")
"""What a URL may say beside the settings that all stores have."""

PREFIX = "omoide:"
_YES = {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}


def open_at(address: Address, embedder: Any, settings: Settings) -> LocalStore:
    """The store on a server."""
    try:
        from omoide.stores.redis.store import RedisStore, kept_in
    except ImportError as error:
        raise MissingExtra("redis://", "redis") from error
    prefix = address.options.get("prefix", PREFIX)
    if not keys.is_prefix(prefix):
        raise Invalid("prefix", f"is {prefix!r}", "use up to 64 letters without spaces and braces")
    server = _connected(address, settings)
    try:
        kept = kept_in(server, prefix) if embedder == "auto" else None
        store = RedisStore(server, prefix, embedder_for(server.name, embedder, kept), settings)
    except BaseException:
        server.close()
        raise
    return LocalStore(store, address.url)


def _connected(address: Address, settings: Settings) -> Connections:
    from omoide.stores.redis.connections import Connections

    parts, options = address.parts, address.options
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise Invalid("url", f"{masked(address.url)!r} names no database", "write its number: redis://host/0")
    cluster = _YES.get(str(options.get("cluster", "no")).lower())
    if cluster is None:
        raise Invalid("cluster", f"is {options['cluster']!r}", "write cluster=yes, or leave it out")
    tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if tls and parts.scheme != "rediss":
        raise Invalid(next(iter(tls)), "is for rediss:// only", "leave it out, or use rediss://")
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = _YES.get(str(tls["ssl_check_hostname"]).lower(), True)
    try:
        port = parts.port or 6379
    except ValueError as error:
        raise Invalid("url", f"{masked(address.url)!r} has no such port", "write a number") from error
    where = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}/{parts.path.strip('/') or 0}"
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return Connections(plain, where, timeout=settings.timeout, cluster=cluster, options=tls)
