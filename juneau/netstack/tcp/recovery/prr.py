"""Proportional rate reduction (RFC 6937, as RFC 9937 has it): how much may leave while recovering."""

from __future__ import annotations


class Prr:
    __slots__ = ("delivered", "out", "recover_flight")

    def __init__(self, flight: int) -> None:
        """`flight`: bytes in flight when recovery began."""
        self.delivered = 0
        self.out = 0
        """Bytes sent since recovery began."""
        self.recover_flight = max(flight, 1)

    def window(self, pipe: int, ssthresh: int, delivered: int, mss: int, advanced: bool) -> int:
        """cwnd after an ACK that delivered so many bytes; `advanced`: it moved snd_una without new loss."""
        self.delivered += delivered
        if pipe > ssthresh:
            send = -(-self.delivered * ssthresh // self.recover_flight) - self.out
        else:
            limit = max(self.delivered - self.out, delivered)
            if advanced:  # a segment for each ACK; an ACK of a superframe stands for one in two segments
                limit += max(mss, delivered // 2)
            send = min(ssthresh - pipe, limit)
        if not self.out:
            send = max(send, mss)  # the fast retransmission itself
        return pipe + max(send, 0)
