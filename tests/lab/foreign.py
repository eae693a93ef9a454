"""A handler that asks its StreamWriter for TLS, in SMTP's words: usual clients know these. Loaded by path."""

import os
import ssl

from juneau.services import VirtualService


class StartTls(VirtualService):
    offset, tcp_ports = 6, (2525,)

    def __init__(self):
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(os.environ["CERT"])

    async def handle_tcp(self, reader, writer):
        writer.write(b"220 here\r\n")
        await reader.readline()
        writer.write(b"250-here\r\n250 STARTTLS\r\n")
        assert await reader.readline() == b"STARTTLS\r\n"
        writer.write(b"220 go ahead\r\n")
        await writer.start_tls(self.tls)
        cipher = writer.get_extra_info("cipher")[1]
        writer.write(b"by " + cipher.encode() + b" you said " + await reader.readline())
        await writer.drain()
