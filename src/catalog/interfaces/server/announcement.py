"""``serve.json``: how the processes of one user find the server of a store, and trust it.

Anyone who can read the file may ask the server, so only its owner can. This module also defines the
form of errors between the two, and imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from catalog.core import errors
from catalog.core.errors import CatalogError, ConfigError, StoreBusyError
from catalog.core.files import describe_os_error

FILE = "serve.json"
_MAX_BYTES = 65_536
_KINDS: dict[str, type[CatalogError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CatalogError)
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """Address of the server of a store, and the proof of its identity.

    Every server makes a new ``secret``; ``key`` is its ``settings_key``.
    """

    pid: int
    host: str
    port: int
    secret: str = field(repr=False)
    key: str
    version: str


def read_announcement(home: Path) -> Announcement | None:
    """Return the announcement of the store's server, which may have died; ``None`` without one.

    A file of another user is ignored, because it could lead anywhere. So is anything but a regular
    file.
    """
    try:
        descriptor = os.open(home / FILE, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != getattr(os, "getuid", int)():
                return None
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    types = {
        item.name: int if item.name in ("pid", "port") else str for item in fields(Announcement)
    }
    if not isinstance(content, dict) or any(
        type(content.get(name)) is not kind for name, kind in types.items()
    ):
        return None
    return Announcement(**{name: content[name] for name in types})


@contextmanager
def announce(home: Path) -> Iterator[Callable[[Announcement], None]]:
    """Be the one server of the store; call the yielded function when the server listens.

    The file is removed at the end, unless another server has written one since (the home may have
    been deleted and restored). Raises :class:`ConfigError` if the store has a server already or the
    file cannot be written, and :class:`StoreError` for a lock that cannot be opened.
    """
    from catalog.store.database import hold_lock

    published: list[Announcement] = []

    def publish(announcement: Announcement) -> None:
        with _explain_os_errors(home):
            _write(home, announcement)
        published.append(announcement)

    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(home / "locks" / "serve.lock", seconds=0, busy="served"))
        except StoreBusyError:
            raise ConfigError(f"{_describe_other(home)}: use it, or stop it first") from None
        with _explain_os_errors(home):
            (home / FILE).unlink(missing_ok=True)  # of a server that was killed
        try:
            yield publish
        finally:
            if read_announcement(home) in published:
                with suppress(OSError):  # one left behind leads nobody astray
                    (home / FILE).unlink()


def _describe_other(home: Path) -> str:
    other = read_announcement(home)
    process = f"process {other.pid} on port {other.port}" if other else "another process"
    return f"{process} serves {home} already"


@contextmanager
def _explain_os_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = describe_os_error(home / FILE, error)
        raise ConfigError(f"cannot announce the server in {reason}") from error


def _write(home: Path, announcement: Announcement) -> None:
    """Put the complete file in place, readable by its owner only."""
    new = home / f"{FILE}.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(announcement), file)
    new.replace(home / FILE)


def make_proof(secret: str, nonce: str) -> str:
    """Return the HMAC-SHA256 (RFC 2104) of the nonce in hexadecimal digits.

    Only a process that knows the secret can make it.
    """
    message = b"catalog serve\0" + nonce.encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def is_proof(value: object, secret: str, nonce: str) -> bool:
    """Return whether the value is the proof; takes the same time for every wrong one."""
    return isinstance(value, str) and hmac.compare_digest(
        value.encode("utf-8", "replace"), make_proof(secret, nonce).encode()
    )


def encode_error(error: CatalogError) -> dict[str, Any]:
    """Return ``{"error": {"kind", "message", "details"}}``; details are the error's attributes."""
    kind, message = type(error).__name__, str(error)
    return {"error": {"kind": kind, "message": message, "details": dict(vars(error))}}


def is_catalog_error(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer contains an error of a known kind."""
    content = answer.get("error")
    return isinstance(content, dict) and content.get("kind") in _KINDS


def decode_error(answer: Mapping[str, Any]) -> CatalogError:
    """Return the error in an answer; an unknown kind becomes a :class:`CatalogError`."""
    content = answer.get("error")
    if not isinstance(content, dict):
        return CatalogError("the server failed without a reason")
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None:
        return CatalogError(f"the server says: {content.get('message')}")
    error = kind.__new__(kind)
    error.args = (str(content.get("message")),)
    for name, value in (content.get("details") or {}).items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error
