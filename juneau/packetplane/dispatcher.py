"""Frames from the TAP to the stacks: read a batch, check the stamp, hand over, settle once.

The reader never waits: a stack only queues, and its `settle` schedules what handlers do.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from juneau.netstack.tap import Tap
from juneau.netstack.types import Micros
from juneau.netstack.wire import vnet
from juneau.packetplane import uso
from juneau.packetplane.bpf.abi import STAMP_TAG
from juneau.packetplane.types import ReturnPath, StackInput

_log = logging.getLogger(__name__)

_ETH_P_IP: Final = 0x0800
_ETHERNET: Final = Struct("!HIHIH")  # stamp (see abi.Stamp), ethertype
_VNET_ETHERNET: Final = Struct("!BB8xHIHIH")  # vnet flags and gso_type first; the rest of it is host order
_MIN_IPV4: Final = 20
_BULK_BYTES: Final = 16_384
PROLONGED: Final = 4
_GSO_UDP: Final = frozenset({vnet.GSO_UDP_L4, vnet.GSO_UDP_L4 | vnet.GSO_ECN})
_GSO_KINDS: Final = _GSO_UDP | {
    kind | ecn for kind in (vnet.GSO_NONE, vnet.GSO_TCPV4) for ecn in (0, vnet.GSO_ECN)
}
_CSUM_OK: Final = vnet.F_NEEDS_CSUM | vnet.F_DATA_VALID

Receiver = Callable[[int], "StackInput | None"]


def monotonic_us() -> Micros:
    return time.monotonic_ns() // 1_000


class Dispatcher:
    """Counters: `rx.short`, `rx.no_stamp`, `rx.not_ip`, `rx.unknown_nic`, `rx.wrong_subnet`, `rx.no_stack`,
    `rx.gso_kind`, `rx.stack_error`; all are drops."""

    def __init__(
        self, receiver: Receiver, counters: Counter[str], *, vnet_header: bool, quick_us: int = 0
    ) -> None:
        """`quick_us`: a batch that took less is prolonged, see `read_batch`."""
        self.paths: Mapping[int, ReturnPath] = {}
        """By ifindex. Replaced as a whole, possibly by another thread."""
        self.receiver = receiver
        self.tap: Tap | None = None
        """Sees dropped frames, from Ethernet on, as `"in"`."""
        self.last_bytes = 0
        """Of the frame read last."""
        self._counters = counters
        self._vnet_header = vnet_header
        self._quick_us = quick_us
        self._ip_at = (vnet.HEADER_BYTES if vnet_header else 0) + _ETHERNET.size

    def read_batch(self, read: Callable[[], bytes | None], budget: int) -> int:
        """Take up to `budget` frames, a superframe counting as four; returns how many there were.

        While that was quick, take as many again, up to `PROLONGED` budgets: small packets that are read
        together are answered together.

        `read` returns None when it is empty and raises OSError when it broke: what came before is delivered,
        then it is raised.
        """
        now = monotonic_us()
        touched: dict[int, StackInput] = {}
        left, taken, prolonged = budget, 0, 1
        try:
            while left > 0 and (frame := read()) is not None:
                taken += 1
                path = self._path_of(frame)
                if path is not None:
                    self._deliver(frame, path, now, touched)
                self.last_bytes = size = len(frame)
                left -= 1 if size < _BULK_BYTES else 4
                if left <= 0 and prolonged < PROLONGED and monotonic_us() - now < self._quick_us:
                    left, prolonged = budget, prolonged + 1
        finally:
            self._settle(touched)
        return taken

    def _path_of(self, frame: bytes) -> ReturnPath | None:
        """Whose frame it is, by its stamp; None: counted and dropped."""
        if len(frame) < self._ip_at + _MIN_IPV4:
            self._drop(frame, "rx.short")
            return None
        if self._vnet_header:
            _, gso, dst_tag, subnet_id, src_tag, ifindex, ethertype = _VNET_ETHERNET.unpack_from(frame)
            if gso not in _GSO_KINDS:
                self._drop(frame, "rx.gso_kind")
                return None
        else:
            dst_tag, subnet_id, src_tag, ifindex, ethertype = _ETHERNET.unpack_from(frame)
        path = self.paths.get(ifindex)
        if (
            path is not None
            and path.subnet_id == subnet_id
            and dst_tag == STAMP_TAG == src_tag
            and ethertype == _ETH_P_IP
        ):
            return path
        if dst_tag != STAMP_TAG or src_tag != STAMP_TAG:
            self._drop(frame, "rx.no_stamp")
        elif ethertype != _ETH_P_IP:
            self._drop(frame, "rx.not_ip")
        else:
            self._drop(frame, "rx.unknown_nic" if path is None else "rx.wrong_subnet")
        return None

    def _deliver(self, frame: bytes, path: ReturnPath, now: Micros, touched: dict[int, StackInput]) -> None:
        vpc_id = path.vpc_id
        try:
            stack = touched.get(vpc_id)
            if stack is None:
                stack = self.receiver(vpc_id)
                if stack is None:
                    self._drop(frame, "rx.no_stack")
                    return
                touched[vpc_id] = stack
            packet = memoryview(frame)[self._ip_at :]
            if not self._vnet_header:
                stack.receive(packet, path, now, False)
            elif frame[1] not in _GSO_UDP:
                # A superframe has partial sums: nobody has had a chance to spoil them.
                stack.receive(packet, path, now, bool(frame[0] & _CSUM_OK or frame[1]))
            elif not _receive_datagrams(stack, packet, vnet.HEADER.unpack_from(frame)[3], path, now):
                self._drop(frame, "rx.gso_kind")
        except Exception:  # noqa: BLE001
            # A stack takes any bytes; if one has a bug, the other tenants must not feel it.
            self._drop(frame, "rx.stack_error")
            _log.exception("stack of vpc %d raised on a packet of %s", vpc_id, path.nic.ifname)

    def _drop(self, frame: bytes, reason: str) -> None:
        self._counters[reason] += 1
        if self.tap is not None:
            ethernet = memoryview(frame)[self._ip_at - _ETHERNET.size :]
            self.tap("in", (ethernet,), None, monotonic_us(), reason)

    def _settle(self, touched: dict[int, StackInput]) -> None:
        for vpc_id, stack in touched.items():
            try:
                stack.settle()
            except Exception:  # noqa: BLE001
                self._counters["rx.stack_error"] += 1
                _log.exception("stack of vpc %d raised while settling", vpc_id)


def _receive_datagrams(
    stack: StackInput, packet: memoryview, size: int, path: ReturnPath, now: Micros
) -> bool:
    """Whether they could be told apart."""
    pieces = uso.split(packet, size)
    for piece in pieces or ():
        stack.receive(piece, path, now, True)
    return pieces is not None
