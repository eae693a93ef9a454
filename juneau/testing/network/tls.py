"""`SSLContext.wrap_socket` for simulated sockets: a blocking TLS client or server in a thread.

asyncio's TLS needs none of this: it encrypts in memory already.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

from juneau.netstack.aio.errors import os_error
from juneau.testing.network.sockets import SimSocket

T = TypeVar("T")

CHUNK: Final = 64 * 1024


def wrap_socket(
    context: ssl.SSLContext,
    sock: SimSocket,
    server_side: bool = False,
    do_handshake_on_connect: bool = True,
    suppress_ragged_eofs: bool = True,
    server_hostname: str | None = None,
    session: ssl.SSLSession | None = None,
) -> SimTlsSocket:
    """As `SSLContext.wrap_socket`: the plain socket is used up."""
    tls = SimTlsSocket(sock, context, server_side, server_hostname, suppress_ragged_eofs, session)
    tls.handshake_on_connect = do_handshake_on_connect
    if do_handshake_on_connect and tls.is_connected():
        try:
            tls.do_handshake()
        except BaseException:
            tls.close()
            raise
    return tls


class SimTlsSocket(SimSocket):
    def __init__(
        self,
        sock: SimSocket,
        context: ssl.SSLContext,
        server_side: bool,
        server_hostname: str | None,
        suppress_ragged_eofs: bool,
        session: ssl.SSLSession | None,
    ) -> None:
        super().__init__()
        self._take_over(sock)
        self.context, self.server_side, self.server_hostname = context, server_side, server_hostname
        self.handshake_on_connect = True
        self._suppress_ragged_eofs = suppress_ragged_eofs
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname, session)

    def _perform(self, call: Callable[..., T], *args: Any) -> T:
        """Do one TLS operation, moving records until it is done."""
        while True:
            try:
                result = call(*args)
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                self._flush()  # the alert
                raise
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        records = memoryview(self._outgoing.read())
        while records:
            records = records[super().send(records) :]

    def _fill(self) -> None:
        try:
            data = super().recv(CHUNK)
        except BlockingIOError as exc:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete") from exc
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def connect(self, address: Any) -> None:
        super().connect(address)
        if self.handshake_on_connect:
            self.do_handshake()

    def do_handshake(self, block: bool = False) -> None:
        self._perform(self._tls.do_handshake)

    def recv(self, bufsize: int = 1024, flags: int = 0) -> bytes:
        if flags:
            raise ValueError("non-zero flags not allowed in calls to recv() on a TLS socket")
        if bufsize == 0:
            return b""
        try:
            return self._perform(self._tls.read, bufsize)
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLEOFError:
            if self._suppress_ragged_eofs:
                return b""
            raise

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self.recv(len) if buffer is None else self.recv_into(buffer, len)

    def send(self, data: Any, flags: int = 0) -> int:
        if flags:
            raise ValueError("non-zero flags not allowed in calls to send() on a TLS socket")
        return self._perform(self._tls.write, data) if len(data) else 0

    write = send

    def can_read(self) -> bool:
        return bool(self._tls.pending()) or super().can_read()

    def sendto(self, data: Any, *args: Any) -> int:
        raise os_error(errno.EOPNOTSUPP, "sendto on a TLS socket")

    def unwrap(self) -> SimSocket:
        """Close TLS in order; the connection goes on in the clear."""
        self._perform(self._tls.unwrap)
        plain = self._boot.run(SimSocket)
        plain._take_over(self)
        return plain

    def pending(self) -> int:
        return self._tls.pending()

    def __getattr__(self, name: str) -> Any:
        """cipher, version, getpeercert, selected_alpn_protocol and the like."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tls, name)
