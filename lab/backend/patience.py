"""How long the server waits for a request's head: uvicorn alone would wait for ever, and for anybody."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0


def patient_protocol(head_s: float = HEAD_S) -> type[asyncio.Protocol]:
    """uvicorn's protocol, but a connection that begins no request within `head_s` to twice `head_s` is closed.

    Who holds many connections open with half a head, which needs no token, would else take all file descriptors.
    Kept-alive connections are none of these: uvicorn closes them sooner by itself.
    """

    class PatientProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._seen: object = None
            self._look = self.loop.call_later(head_s, self._has_begun)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def _has_begun(self) -> None:
            cycle = self.cycle
            if cycle is self._seen and (cycle is None or cycle.response_complete):
                self.transport.close()
                return
            self._seen = cycle
            self._look = self.loop.call_later(head_s, self._has_begun)

    return PatientProtocol
