"""Servers on a port that ours had once: raw sockets that answer with anything at all."""

import json
import socket
import threading
from contextlib import contextmanager, suppress
from types import SimpleNamespace

from catalog.interfaces.server.announcement import make_proof


@contextmanager
def stranger(behave):
    """Gives each connection to ``behave(connection, received)``; the latter keeps what came."""
    received, threads = bytearray(), []

    def accept(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(connection,)))
            threads[-1].start()

    def one(connection):
        with connection:
            connection.settimeout(20)
            with suppress(OSError):
                behave(connection, received)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            yield SimpleNamespace(port=listener.getsockname()[1], received=received)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
            for other in threads:
                other.join(20)


def read_request(connection, received):
    """The next request, whole; empty if the other end has closed."""
    request = b""
    while b"\r\n\r\n" not in request:
        piece = connection.recv(65536)
        if not piece:
            return b""
        request += piece
        received += piece
    head, _, body = request.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        piece = connection.recv(65536)
        body += piece
        received += piece
    return request


def reply(connection, body, status=200):
    told = f"HTTP/1.1 {status} OK\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(told.encode() + body)


def prove(connection, received, secret):
    """Answer the challenge as our server does."""
    request = read_request(connection, received)
    nonce = request.split(b"nonce=")[1].split(b" ")[0].decode()
    said = {"proof": make_proof(secret, nonce), "timeout_seconds": 30.0}
    reply(connection, json.dumps(said).encode())
