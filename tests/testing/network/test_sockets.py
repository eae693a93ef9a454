"""Programs that make their own sockets, and blocking clients in threads."""

from __future__ import annotations

import asyncio
import errno
import http.client
import select
import socket
import ssl
import threading
import time

import pytest

from juneau.netstack.types import Misuse
from juneau.testing.network import Network


@pytest.fixture
def net():
    with Network(seed=2) as network:
        server, client = network.host("server", boot=serve), network.host("client")
        network.link(server, client, delay_ms=10, loss=0.02)
        yield network


async def serve():
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)
        await writer.drain()
        writer.close()

    await (await asyncio.start_server(handle, "0.0.0.0", 80)).serve_forever()


def get():
    connection = http.client.HTTPConnection("server", timeout=60)
    connection.request("GET", "/")
    body = connection.getresponse().read()
    connection.close()
    return len(body)


def test_a_blocking_client_in_a_thread(net):
    async def main():
        await asyncio.sleep(1)
        return await asyncio.gather(asyncio.to_thread(get), asyncio.to_thread(get))

    assert net.run(main(), on=net.hosts["client"]) == [100_000, 100_000]


def test_a_blocking_client_outside_the_loop(net):
    with net.entered(net.hosts["client"]):
        time.sleep(1)
        assert get() == 100_000
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            socket.create_connection(("10.99.0.1", 80), timeout=3)
        assert time.monotonic() - began == 3


def test_a_blocking_call_in_the_loop_stalls_it_and_not_the_network(net):
    async def main():
        await asyncio.sleep(1)
        began, late = net.now, []
        asyncio.get_running_loop().call_later(0.001, lambda: late.append(net.now - began))
        with socket.create_connection(("server", 80), timeout=30):
            assert not late
        await asyncio.sleep(0)
        assert late[0] >= 0.02
        with socket.create_connection(("server", 80)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(RuntimeError, match="nothing can arrive any more before the loop turns"):
                sock.recv(1)  # the server is code of the same loop

    net.run(main(), on=net.hosts["client"])


def test_sock_calls_and_readers(net):
    async def main():
        loop = asyncio.get_running_loop()
        listener = socket.create_server(("", 99))
        listener.setblocking(False)

        async def accept():
            sock, peer = await loop.sock_accept(listener)
            data = bytearray(10)
            count = await loop.sock_recv_into(sock, data)
            await loop.sock_sendall(sock, bytes(data[:count]).upper())
            sock.close()
            return peer

        accepted = asyncio.create_task(accept())
        sock = socket.socket()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.connect(("127.0.0.1", 99))
        assert sock.connect_ex(("127.0.0.1", 99)) == errno.EALREADY
        await asyncio.sleep(0.01)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        readable = asyncio.Event()
        loop.add_reader(sock, readable.set)
        await loop.sock_sendall(sock, b"abc")
        await readable.wait()
        assert loop.remove_reader(sock)
        assert sock.recv(10) == b"ABC"
        assert await accepted == sock.getsockname()
        assert await loop.sock_recv(sock, 10) == b""
        sock.close()
        listener.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            sock.recv(1)
        sock = socket.socket()
        sock.setblocking(False)
        with sock, pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(sock, ("127.0.0.1", 99))
        with pytest.raises(Misuse, match="no socket of this network"):
            loop.add_reader(0, print)

    net.run(main(), on=net.hosts["client"])


def test_own_sockets_become_transports(net):
    async def main():
        sock = socket.socket()
        sock.bind(("", 0))
        port = sock.getsockname()[1]

        async def handle(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(handle, sock=sock)
        assert server.sockets[0].getsockname()[1] == port
        with pytest.raises(OSError, match="error while attempting to bind on address"):
            await asyncio.start_server(handle, "127.0.0.1", port)
        mine = socket.create_connection(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=mine)
        writer.write(b"line\n")
        assert await reader.read() == b"line\n"
        writer.close()

    net.run(main(), on=net.hosts["client"])


def test_select_and_socketpair_between_threads(net):
    seen = []

    def watch(one, two):
        for _ in range(3):
            readable, _, _ = select.select([one, two], [], [], 5)
            seen.append((round(time.monotonic(), 2), [sock.recv(10) for sock in readable]))

    async def main():
        (a, one), (b, two) = socket.socketpair(), socket.socketpair()
        thread = threading.Thread(target=watch, args=(one, two))
        thread.start()
        await asyncio.sleep(1)
        a.sendall(b"a")
        await asyncio.sleep(1)
        b.sendall(b"b")
        await asyncio.to_thread(thread.join)
        for sock in (a, one, b, two):
            sock.close()

    net.run(main(), on=net.hosts["client"])
    assert seen == [(1, [b"a"]), (2, [b"b"]), (7, [])]


def test_a_dropped_socket_is_closed(net):
    async def main():
        listener = socket.create_server(("", 99))
        socks = [socket.create_connection(("127.0.0.1", 99))]
        with pytest.warns(ResourceWarning, match="unclosed <SimSocket"):
            socks.clear()
        peer, _ = listener.accept()
        assert peer.recv(1) == b""
        peer.close()
        listener.close()

    net.run(main(), on=net.hosts["client"])


def test_tls_of_a_blocking_client_hears_that_the_handshake_failed(net):
    """The server has no certificate. Handshakes that succeed are among CPython's tests, see tests/foreign."""

    def client():
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("server", 443)) as sock,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(sock, server_hostname="server")
        return time.monotonic()

    async def tls():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        await asyncio.start_server(lambda r, w: None, "0.0.0.0", 443, ssl=context)
        await asyncio.sleep(60)

    async def main():
        serving = net.hosts["server"].create_task(tls())
        await asyncio.sleep(1)
        ended = await asyncio.to_thread(client)
        serving.cancel()
        return ended

    net.loop.set_exception_handler(lambda loop, context: None)
    assert 1.03 < net.run(main(), on=net.hosts["client"]) < 5
