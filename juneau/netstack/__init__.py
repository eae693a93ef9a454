"""A TCP/IP stack without I/O: packets and time go in, packets and events come out.

`juneau.netstack.aio` puts it behind asyncio. Everything else here reads no clock, opens no
socket and draws no randomness of its own.
"""
