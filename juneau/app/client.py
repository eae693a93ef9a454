"""Asks a running lab over its control socket. Standard library only, so that commands start quickly."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any, Final

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
    connection = _UnixConnection(path)
    try:
        connection.request("GET", f"/v1/{what}")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(f"ask the lab at {path}: {error} (is it still starting?)") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ApiError(f"ask the lab for {what}: status {response.status} (its log may say more)")
    return json.loads(body)
