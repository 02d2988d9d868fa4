"""Host and port, as people write them and as a Host header holds them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from catalog.core.errors import ConfigError

_BRACKETED = re.compile(r"\[[^\[\]]*\](:\d*)?")
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; port 0 is any free one. ``host`` has no brackets."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def reachable_host(self) -> str:
        """The host to connect to from this machine: loopback, if it listens everywhere."""
        return _ANYWHERE.get(self.host, self.host)

    @property
    def url(self) -> str:
        """``http://host:port``, as this machine reaches it."""
        host = self.reachable_host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``HOST:PORT`` or ``[IPV6]:PORT``; raises :class:`ConfigError` for anything else."""
    found = split_host_port(text.strip())
    if found is None or not found[0] or found[1] is None:
        raise ConfigError(f"{text!r} is no address: write HOST:PORT, such as 127.0.0.1:8180")
    return Address(found[0], found[1])


def is_loopback(host: str) -> bool:
    """Whether the name, in small letters, can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def split_host_port(name: str) -> tuple[str, int | None] | None:
    """Host in small letters and port of ``host[:port]``; ``None`` if it is neither."""
    if not name.isascii() or any(char in "/?#@\\%" or char.isspace() for char in name):
        return None
    if name.count(":") > 1 and not name.startswith("["):
        name = f"[{name}]"  # a bare IPv6 address, as settings and Address.host have it
    try:
        parts = urlsplit(f"//{name}")
        if "]" in name and not _BRACKETED.fullmatch(name):
            return None  # urlsplit passes over what follows the bracket
        return ((parts.hostname or "").lower(), parts.port)
    except ValueError:
        return None
