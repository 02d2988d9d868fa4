"""What befalls a Postgres server and the way to it: cut connections, a crash, a failover."""

import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL

import postgres


class Way(socketserver.ThreadingTCPServer):
    """A TCP address before the socket of a server, which can be turned to another server.

    The message of a client that holds ``fatal`` ends all connections, when ``mercy`` such have
    passed: before the server has it or, ``is_delivered``, after it was done, its answer lost.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, socket_folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.socket_folder = socket_folder
        self.fatal, self.mercy, self.is_delivered = b"", 0, False
        self.cuts = 0
        self.open: set[socket.socket] = set()

    def url_of(self, url: URL) -> URL:
        """The address of a database by this way."""
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        return url.set(host="127.0.0.1", port=self.server_address[1], query=plain)

    def cut(self, those: set[socket.socket] | None = None) -> None:
        """End every connection there is, or those."""
        for one in list(self.open if those is None else those):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def strikes(self, message: bytes) -> bool:
        """Whether this message is the one to be cut off."""
        if not self.fatal or self.fatal not in message:
            return False
        self.mercy -= 1
        if self.mercy >= 0:
            return False
        self.fatal = b""
        self.cuts += 1
        return True


class _Connection(socketserver.BaseRequestHandler):
    server: Way

    def handle(self) -> None:
        way, ours = self.server, socket.socket(socket.AF_UNIX)
        with ours, suppress(OSError):
            ours.connect(str(way.socket_folder / ".s.PGSQL.5432"))
            way.open |= {ours, self.request}
            back = threading.Thread(target=_pass, args=(ours, self.request), daemon=True)
            back.start()
            while message := self.request.recv(65536):
                if way.strikes(message):
                    there = set(way.open)  # and not what the client opens from now on
                    if way.is_delivered:
                        way.open -= {ours}
                        self.request.shutdown(socket.SHUT_RDWR)
                        ours.sendall(message)
                        back.join(5)  # its answer has come, and has nowhere to go
                    way.cut(there)
                    break
                ours.sendall(message)
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            back.join(5)
        way.open -= {ours, self.request}


def _pass(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while answer := one.recv(65536):
            other.sendall(answer)
        other.shutdown(socket.SHUT_RDWR)


@contextmanager
def way_to(server: postgres.Stores) -> Iterator[Way]:
    """A way to the server of the tests until the block ends."""
    with Way(Path(server.url.query["host"])) as way:
        thread = threading.Thread(target=way.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield way
        finally:
            way.shutdown()
            way.cut()
            thread.join()


class Node:
    """One server's data folder, which is started and stopped."""

    def __init__(self, server: Any, folder: Path, socket_folder: Path) -> None:
        self._server, self.folder, self.socket_folder = server, folder, socket_folder

    def run(self, name: str, *arguments: str, on_folder: bool = True) -> None:
        """Run one of the programs of Postgres as the user that the server runs as."""
        from pgserver import _commands

        where = self.folder if on_folder else None
        getattr(_commands, name)([*arguments], pgdata=where, user=self._server.system_user)

    def crash(self) -> None:
        """End it at once, as a loss of power does: no transaction is ended well."""
        self.run("pg_ctl", "-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        options = ("-o", f"-h '' -k {self.socket_folder}", "-l", str(self.folder / "log"))
        self.run("pg_ctl", "-w", *options, "start")


def node(server: postgres.Stores) -> Node:
    """The server of the tests, with all that it has been told on its disk."""
    server.run("CHECKPOINT")
    made = server.server
    return Node(made, made.pgdata, Path(server.url.query["host"]))


@contextmanager
def standby(server: postgres.Stores) -> Iterator[Node]:
    """A second server that follows the first, and answers readers."""
    folder, user = Path(tempfile.mkdtemp(prefix="catalog-standby-")), server.server.system_user
    if user:
        shutil.chown(folder, user)
    second = Node(server.server, folder, folder)
    second.run("pg_basebackup", "-h", server.url.query["host"], "-U", "postgres", *_COPY)
    (folder / ".s.PGSQL.5432.lock").unlink()  # the first one's, whose socket is in its folder
    second.start()
    try:
        yield second
    finally:
        with suppress(subprocess.CalledProcessError):  # it was ended already
            second.crash()
        shutil.rmtree(folder)


_COPY = ("-R", "-c", "fast", "--no-sync")  # and follow the first, from where it is now
