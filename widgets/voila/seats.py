"""Kernels of the pages: only so many at one time, and none for ever."""

from __future__ import annotations

import time
import uuid
from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets import Integer


class Full(Exception):
    """All seats are taken."""


class SeatedKernels(AsyncMappingKernelManager):
    """Kernels with a limit on their number and on their age. Idle ones are culled as the base class does."""

    seats = Integer(0, help="Kernels at one time; 0 for any number.").tag(config=True)
    page_s = Integer(0, help="Seconds after which a kernel ends in any case; 0 for never.").tag(config=True)
    first_s = Integer(60, help="Seconds that a page has to connect before its kernel counts as idle.").tag(config=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]  # jupyter_server types half of its methods
        self._born: dict[str, float] = {}
        self._met: set[str] = set()

    async def start_kernel(self, **options: Any) -> str:  # type: ignore[override]  # as the base class does
        """Start a kernel.

        Raises:
            Full: there are as many as there may be, those counted that are still starting.
        """
        taken = set(self.list_kernel_ids())
        self._born = {k: t for k, t in self._born.items() if k in taken or t < 0}
        self._met &= taken
        starting = {k for k, t in self._born.items() if t < 0}
        if self.seats and len(taken | starting) >= self.seats:
            raise Full
        kernel_id = str(uuid.uuid4())
        self._born[kernel_id] = -1.0
        try:
            started: str = await super().start_kernel(kernel_id=kernel_id, **options)
        except BaseException:
            self._born.pop(kernel_id, None)
            raise
        self._born[kernel_id] = time.monotonic()
        return started

    def notify_connect(self, kernel_id: str) -> None:
        """A page is there."""
        self._met.add(kernel_id)
        super().notify_connect(kernel_id)  # type: ignore[no-untyped-call]

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End a kernel that is idle or too old. On a busy machine its page takes a while to come."""
        born = self._born.get(kernel_id, -1.0)
        age_s = time.monotonic() - born
        if born < 0 or (kernel_id not in self._met and age_s < self.first_s):
            return
        if self.page_s and age_s > self.page_s:
            self.log.warning("A page's kernel ends: it is older than %d s.", self.page_s)
            await self.shutdown_kernel(kernel_id)  # type: ignore[no-untyped-call]
            return
        await super().cull_kernel_if_idle(kernel_id)  # type: ignore[no-untyped-call]
