"""Asks a running lab over its control socket. Standard library only, so that commands start quickly."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

_TIMEOUT_S: Final = 10.0


class ApiError(Exception):
    """The lab did not answer."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("lab", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get(path: Path, what: str) -> Any:
    """`what`: status, drops, flows or conns. Raises ApiError."""
    with _asked(path, "GET", what) as response:
        return json.loads(response.read())


class Stream:
    """A capture of the lab, from the header on."""

    def __init__(self, path: Path, response: http.client.HTTPResponse) -> None:
        self._path, self._response = path, response
        self._key = response.headers["Capture-Id"]

    def read(self) -> bytes:
        """What there is, at least a byte; b"": the end. Raises ApiError when the lab goes before that."""
        try:
            return self._response.read1(1 << 20)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"capture: the lab ended it ({error or type(error).__name__})") from error

    def end(self) -> None:
        """Ask for no more; what there is can still be read. Raises ApiError."""
        with _asked(self._path, "DELETE", f"capture/{self._key}"):
            pass


@contextmanager
def capture(path: Path, **query: object) -> Iterator[Stream]:
    """`query`: pod (namespace/name), vpc, count, duration (seconds). Raises ApiError."""
    with _asked(path, "GET", "capture", query, patient=True) as response:
        yield Stream(path, response)


@contextmanager
def _asked(
    path: Path, method: str, what: str, query: Mapping[str, object] | None = None, *, patient: bool = False
) -> Iterator[http.client.HTTPResponse]:
    """`patient`: the body may take any time."""
    connection = _UnixConnection(path)
    try:
        try:
            connection.request(method, f"/v1/{what}?{urlencode(query or {})}")
            if patient:
                connection.sock.settimeout(None)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"ask the lab at {path}: {error} (is it still starting?)") from error
        if response.status == http.client.NOT_FOUND and query:
            raise ApiError(f"ask the lab for {what}: {response.read(1000).decode()}")
        if response.status != http.client.OK:
            raise ApiError(f"ask the lab for {what}: status {response.status} (its log may say more)")
        yield response
    finally:
        connection.close()
