"""How a server shows that it wrote ``serve.json``, before it is told anything."""

from __future__ import annotations

import hashlib
import hmac


def proof(secret: str, nonce: str) -> str:
    """HMAC-SHA256 (RFC 2104) of the nonce, hexadecimal; only who knows the secret can make it."""
    return hmac.new(
        secret.encode(), b"catalog serve\0" + nonce.encode(), hashlib.sha256
    ).hexdigest()


def is_proof(given: object, secret: str, nonce: str) -> bool:
    """Whether it is that; takes the same time for every wrong one."""
    return isinstance(given, str) and hmac.compare_digest(
        given.encode("utf-8", "replace"), proof(secret, nonce).encode()
    )
