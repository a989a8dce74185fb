"""Where does a service listen, and who can reach it there?"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from omoide.errors import Invalid


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise Invalid("port", f"{port} of {host} cannot be used ({problem})", "choose others") from error
    # Connections take this over. Without it an answer waits 40 ms for the client to confirm its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    found = _address(host)
    return host == "localhost" if found is None else found.is_loopback


def is_everywhere(host: str) -> bool:
    """Whether an address stands for all that this machine has."""
    found = _address(host)
    return found is not None and found.is_unspecified


def url_of(host: str, port: int) -> str:
    """The URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
