"""A mail server, aiosmtpd's own, at `.5` of every Subnet: port 25, with STARTTLS where CERT names a PEM file
with key and certificate. What it gets is in the lab's log.

juneau lab up -f examples/demo --service examples/smtp.py:Smtp
"""

import logging
import os
import ssl

from aiosmtpd.smtp import SMTP

from juneau.services import Listener, Protocol, VirtualService

log = logging.getLogger(__name__)


class Mailbox:
    async def handle_DATA(self, server, session, envelope):
        vpc = server.transport.get_extra_info("vpc")
        how = "TLS" if session.ssl else "plain"
        log.info("%s mail in %s: %s", how, vpc, envelope.content.decode(errors="replace"))
        return "250 Taken"


class Smtp(VirtualService):
    offset = 5

    def __init__(self):
        self.tls = None
        if "CERT" in os.environ:
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(os.environ["CERT"])

    def protocol(self):
        return SMTP(Mailbox(), hostname="mail", tls_context=self.tls)

    def listeners(self):
        return (Listener(Protocol.TCP, 25, protocol_factory=self.protocol),)
