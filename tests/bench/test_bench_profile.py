"""What py-spy saw, put into rooms."""

from __future__ import annotations

import pytest

from bench import profile
from bench.profile import Profile, room_of, shares, table

BASE = "main (juneau/cli/main.py:9);Runner.run (asyncio/runners.py:118);"
CONN = "Driver.settle (juneau/netstack/aio/driver.py:1);transmit (juneau/netstack/tcp/output.py:30)"


@pytest.mark.parametrize(
    ("stack", "room"),
    [
        (BASE + CONN, "netstack: TCP"),
        (BASE + CONN + ";memmove (libc.so.6)", "netstack: TCP"),
        (BASE + "Sender._send_one (juneau/packetplane/sender.py:3);send (libc.so.6)", "kernel: send"),
        (
            BASE + "Dispatcher.read_batch (juneau/packetplane/dispatcher.py:3);read (libc.so.6)",
            "kernel: read",
        ),
        (BASE + "TapReader._on_readable (juneau/packetplane/reader.py:60)", "packetplane"),
        (BASE + "StreamReader.read (asyncio/streams.py:700)", "asyncio"),
        (BASE + "Stack._receive (juneau/netstack/stack.py:90)", "netstack: IP, UDP"),
        (BASE + "echo (/tmp/handler.py:4)", "handler, libraries"),
        (BASE + "uv__run_timers (uvloop/loop.so)", "uvloop"),
        (BASE + "epoll_pwait (libc.so.6)", "epoll"),
    ],
)
def test_a_sample_is_in_the_innermost_room(stack: str, room: str) -> None:
    assert room_of(stack) == room


def test_waiting_and_other_threads_do_not_count() -> None:
    lines = [
        f"{BASE}{CONN} 30",
        f"{BASE}echo (/tmp/handler.py:4) 10",
        f"{BASE}epoll_pwait (libc.so.6) 500",
        "_worker (concurrent/futures/thread.py:81);futex (libc.so.6) 1000",
    ]
    assert shares(lines) == {"netstack: TCP": 0.75, "handler, libraries": 0.25}


def test_the_rows_of_a_column_add_up_to_its_cpu_time() -> None:
    parts = {room: 1 / (len(profile.ROOMS) - 1) for room in profile.ROOMS if room != "epoll"}
    text = table([Profile("rtt", "round trip", 100.0, parts)])
    figures = [float(line.split("|")[2]) for line in text.splitlines()[2:-1]]
    assert sum(figures) == pytest.approx(100.0, abs=0.5)
    assert text.splitlines()[-1] == "| **all** | **100.0** |"
