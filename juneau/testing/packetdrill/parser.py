"""Tokens to a script. The grammar is packetdrill's (IPv4, TCP, UDP and ICMP of it)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from juneau.netstack.types import SECOND, Micros
from juneau.testing.packetdrill.lexer import Token, preprocess, tokens
from juneau.testing.packetdrill.model import (
    ANYTHING,
    Action,
    Array,
    CodeEvent,
    CommandEvent,
    Event,
    Expr,
    IcmpSpec,
    IpInfo,
    Name,
    Or,
    PacketEvent,
    Script,
    ScriptError,
    Struct,
    SyscallEvent,
    TcpOption,
    TcpSpec,
    Time,
    UdpSpec,
    When,
)

_ECN: Final = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}
_FLAG_WORD: Final = re.compile(r"[SFRPUECWA]+(?:[0-7])?")
_NO_VALUE: Final = ("nop", "eol", "sackOK", "sackok")


def parse(text: str, symbols: Collection[str] = ()) -> Script:
    """Raises ScriptError, with the line, for anything that is not the language."""
    return _Parser(preprocess(text, symbols)).script()


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._tokens = list(tokens(text))
        self._at = 0

    # --- the token stream ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _take(self, *kinds: str) -> Token:
        token = self._next
        if kinds and token.kind not in kinds:
            raise self._error(f"expected {' or '.join(kinds)}")
        self._at += 1
        return token

    def _skip(self, text: str) -> bool:
        """Take the next token if it reads `text`."""
        if self._next.text == text and self._next.kind not in ("string", "command", "code"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._error(f"expected {text!r}")

    def _error(self, message: str) -> ScriptError:
        return ScriptError(self._next.line, f"{message}, got {self._next.text[:40]!r}")

    # --- script and events ---

    def script(self) -> Script:
        options = self._options()
        init = self._commands()
        events: list[Event] = []
        while self._next.kind not in ("end", "command"):
            events.append(self._event())
        cleanup = self._commands()
        if self._next.kind != "end":
            raise self._error("expected an event")
        return Script(options, init, tuple(events), cleanup)

    def _options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        while self._next.kind == "option":
            name, value = self._take().text[2:], ""
            if self._skip("="):
                value = self._take().text.strip("\"'`")
                if self._skip("="):
                    value += "=" + self._take().text.strip("\"'`")
            options[name] = value
        return options

    def _commands(self) -> tuple[str, ...]:
        found: list[str] = []
        while self._next.kind == "command":
            found.append(self._take().text[1:-1])
        return tuple(found)

    def _event(self) -> Event:
        line = self._next.line
        time, ends = self._time()
        action = self._action(ends)
        last = self._tokens[self._at - 1]
        source = " ".join(part.strip() for part in self._lines[line - 1 : last.line])
        return Event(line, time, action, source.split("//")[0].strip()[:200])

    def _time(self) -> tuple[Time, Micros | None]:
        """The event's time, and the end of a blocking call (`0...0.2`)."""
        if self._skip("*"):
            return Time(When.ANY), None
        relative = self._skip("+")
        when = When.RELATIVE if relative else When.ABSOLUTE
        start = self._seconds()
        if self._skip("~"):
            if relative:
                self._expect("+")
            return Time(when, start, self._seconds()), None
        if self._next.kind == "ellipsis" and self._peek().kind in ("int", "float"):
            self._take()
            return Time(when, start), self._seconds()
        return Time(when, start), None

    def _seconds(self) -> Micros:
        return round(float(self._take("int", "float").text) * SECOND)

    def _action(self, ends: Micros | None) -> Action:
        token = self._next
        if token.kind == "command":
            return CommandEvent(self._take().text[1:-1])
        if token.kind == "code":
            return CodeEvent(self._take().text[2:-2])
        if token.text in ("<", ">"):
            return self._packet()
        return self._syscall(ends)

    # --- packets ---

    def _packet(self) -> PacketEvent:
        inbound = self._take().text == "<"
        ip = self._ip_info()
        if self._next.text == "icmp":
            return PacketEvent(inbound, self._icmp(), ip)
        if self._next.text == "udp":
            self._take()
            source, target = self._ports()
            self._expect("(")
            size = self._int()
            self._expect(")")
            return PacketEvent(inbound, UdpSpec(size, source, target), ip)
        if self._next.text in ("ipv4", "ipv6", "gre", "GREv0", "mpls", "psp", "sctp", "udplite"):
            raise self._error("encapsulation and protocols other than TCP, UDP and ICMP are not supported")
        return PacketEvent(inbound, self._tcp(), ip)

    def _ip_info(self) -> IpInfo:
        if self._next.text not in ("[", "(") or self._peek().text not in (
            *_ECN,
            "ect01",
            "tos",
            "ttl",
            "flowlabel",
        ):
            return IpInfo()
        closing = "]" if self._take().text == "[" else ")"
        fields: dict[str, int | bool] = {}
        while not self._skip(closing):
            word = self._take().text
            if word in _ECN:
                fields["ecn"] = _ECN[word]
            elif word == "ect01":
                fields["ect01"] = True
            elif word in ("tos", "ttl"):
                fields[word] = self._int()
            elif word == "flowlabel":
                self._int()
            elif word != ",":
                raise self._error("expected ecn, tos or ttl")
        return IpInfo(**fields)  # type: ignore[arg-type]

    def _ports(self) -> tuple[int, int]:
        if self._next.kind == "int" and self._peek().text == ">":
            source = self._int()
            self._take()
            return source, self._int()
        return 0, 0

    def _tcp(self) -> TcpSpec:
        source, target = self._ports()
        flags = self._flags()
        seq, size = self._seq()
        ack = self._int() if self._skip("ack") else None
        win = self._wildcard_int() if self._skip("win") else None
        urg = self._int() if self._skip("urg") else 0
        options = self._tcp_options() if self._next.text == "<" and self._opens_options() else ()
        return TcpSpec(flags, seq, size, ack, win, urg, options, source, target)

    def _flags(self) -> str:
        if self._skip("-"):
            return ""
        if self._skip("."):
            return "."
        token = self._take("word")
        if not _FLAG_WORD.fullmatch(token.text):
            self._at -= 1
            raise self._error("expected TCP flags")
        return token.text + ("." if self._skip(".") else "")

    def _seq(self) -> tuple[int | None, int]:
        """`1:1001(1000)`, or `...(0)`."""
        line = self._next.line
        seq: int | None = None
        end = 0
        if self._next.kind == "ellipsis":
            self._take()
        else:
            seq = self._int()
            self._expect(":")
            end = self._int()
        self._expect("(")
        size = self._int()
        self._expect(")")
        if seq is not None and (seq + size - end) % 2**32:
            raise ScriptError(line, f"inconsistent TCP sequence numbers: {seq}:{end} is not {size} bytes")
        return seq, size

    def _opens_options(self) -> bool:
        """A `<` on the same line starts options; on a new line it starts an inbound packet's text."""
        return self._next.line == self._tokens[self._at - 1].line

    def _tcp_options(self) -> tuple[TcpOption, ...] | None:
        self._expect("<")
        if self._next.kind == "ellipsis":
            self._take()
            self._expect(">")
            return None
        found = [self._tcp_option()]
        while self._skip(","):
            found.append(self._tcp_option())
        self._expect(">")
        return tuple(found)

    def _tcp_option(self) -> TcpOption:
        name = self._take("word").text
        if name in _NO_VALUE:
            return TcpOption("sackOK" if name == "sackok" else name)
        if name in ("mss", "wscale"):
            return TcpOption(name, (self._int(),))
        if name == "TS":
            self._expect("val")
            val = self._int()
            self._expect("ecr")
            return TcpOption(name, (val, self._int()))
        if name == "sack":
            return TcpOption(name, self._sack_blocks())
        if name in ("md5", "FO", "FOEXP"):
            text = self._take().text if self._next.kind in ("word", "int") else ""
            try:
                return TcpOption(name, (), bytes.fromhex(text))
            except ValueError:
                raise self._error(f"{name} {text}: expected an even number of hex digits") from None
        raise self._error(f"TCP option {name} is not supported")

    def _sack_blocks(self) -> tuple[int, ...]:
        edges: list[int] = []
        while self._next.kind == "int":
            edges.append(self._int())
            self._expect(":")
            edges.append(self._int())
        return tuple(edges)

    def _icmp(self) -> IcmpSpec:
        self._expect("icmp")
        kind, code, mtu, echo_id = self._take("word").text, "", 0, 0
        seq: int | None = None
        size, udp_size = 0, None
        if self._next.kind == "word" and self._next.text not in ("mtu", "id"):
            code = self._take().text
        if self._skip("mtu"):
            mtu = self._int()
        if self._skip("id"):
            echo_id = self._int()
        if self._skip("["):
            if self._skip("udp"):
                self._expect("(")
                udp_size = self._int()
                self._expect(")")
            else:
                seq, size = self._seq()
            self._expect("]")
        return IcmpSpec(kind, code, mtu, seq, size, udp_size, echo_id)

    # --- system calls ---

    def _syscall(self, ends: Micros | None) -> SyscallEvent:
        name = self._take("word").text
        self._expect("(")
        args = self._list(")")
        self._expect("=")
        result = self._expr()
        errno = ""
        if self._next.kind == "word" and self._peek().text == "(" and self._next.text.startswith("E"):
            errno = self._take().text
        if self._skip("("):
            while not self._skip(")"):
                self._take()
        return SyscallEvent(name, tuple(args), result, errno, ends)

    def _list(self, closing: str) -> list[Expr]:
        items: list[Expr] = []
        while not self._skip(closing):
            items.append(self._expr())
            if not self._skip(","):
                self._expect(closing)
                break
        return items

    def _expr(self) -> Expr:
        value = self._operand()
        while self._skip("|"):
            value = Or(value, self._operand())
        return value

    def _operand(self) -> Expr:
        token = self._next
        if token.kind in ("int", "hex"):
            return self._int()
        if token.kind == "ellipsis":
            self._take()
            return ANYTHING
        if token.kind == "string":
            text = self._take().text[1:-1].encode().decode("unicode_escape")
            if self._next.kind == "ellipsis":
                self._take()
            return text
        if self._skip("["):
            return Array(tuple(self._list("]")))
        if self._skip("{"):
            return self._struct()
        if token.kind == "word":
            return self._word()
        raise self._error("expected an expression")

    def _word(self) -> Expr:
        """A symbol, or a call like htons(8080) or inet_addr("192.0.2.1"), whose argument is its value."""
        name = self._take("word").text
        if name in ("htons", "inet_addr", "htonl", "inet_pton") and self._skip("("):
            args = self._list(")")
            return args[-1]
        return Name(name)

    def _struct(self) -> Struct:
        fields: dict[str, Expr] = {}
        while not self._skip("}"):
            name = str(len(fields))
            if self._next.kind == "word" and self._peek().text in ("=", "("):
                name = self._field_name(name)
            fields[name] = self._expr()
            if not self._skip(","):
                self._expect("}")
                break
        return Struct(fields)

    def _field_name(self, otherwise: str) -> str:
        """`fd=`, or `msg_iov(2)=`; a call such as htons(…) is a value, not a name."""
        mark = self._at
        name = self._take("word").text
        if self._skip("("):
            self._list(")")
        if self._skip("="):
            return name
        self._at = mark
        return otherwise

    def _int(self) -> int:
        token = self._take("int", "hex")
        return int(token.text, 16 if token.kind == "hex" else 10)

    def _wildcard_int(self) -> int | None:
        if self._next.kind == "ellipsis":
            self._take()
            return None
        return self._int()
