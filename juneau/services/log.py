"""Log lines that name the tenant, and cannot flood: a Pod decides how often a handler fails."""

from __future__ import annotations

import logging
import time
from typing import Final

from juneau.model.ids import ServiceSpec

LINES_PER_SECOND: Final = 10
"""Per binding; the rest is counted and told with the next line."""


class Reporter:
    """Reports what befell one binding."""

    def __init__(self, logger: logging.Logger, name: str, spec: ServiceSpec) -> None:
        self._logger, self._name, self._spec = logger, name, spec
        self._second, self._lines, self.suppressed = 0, 0, 0

    def error(self, what: str, *, client: str = "", error: BaseException | None = None) -> None:
        if not self._may_write():
            self.suppressed += 1
            return
        tenant = self._spec.tenant
        more = f" ({self.suppressed} more were not logged)" if self.suppressed else ""
        self.suppressed = 0
        self._logger.error(
            "service %s at %s: %s: vpc=%d subnet=%d client=%s%s",
            *(self._name, self._spec.addr, what, tenant.vpc_id, tenant.subnet_id, client or "-", more),
            exc_info=error,
        )

    def _may_write(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND
