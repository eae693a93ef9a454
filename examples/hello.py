"""A network service is a coroutine: `juneau serve examples/hello.py:handle --tcp 8080`."""

from juneau.services import VirtualService


async def handle(reader, writer):
    while (await reader.readline()).strip():  # the request's head ends with an empty line
        pass
    client, _ = writer.get_extra_info("peername")
    service, vpc, tenant = map(writer.get_extra_info, ("service", "vpc", "tenant"))
    body = f"hello {client}, this is {service} of {vpc} ({tenant.vpc_id}/{tenant.subnet_id})\n"
    writer.write(
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    )
    await writer.drain()


class Hello(VirtualService):
    """At `.3`, port 8080, of every Subnet: `juneau lab up … --service examples/hello.py:Hello`."""

    offset, tcp_ports = 3, (8080,)
    handle_tcp = staticmethod(handle)
