"""Which replica gets a request: the one that has the run it is about, else the one of two that has less to do."""

from __future__ import annotations

import random

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica


class HomeFirst(FIFOMixin, RequestRouter):
    """A request that names a replica (`prefer`) goes there while it lives: it knows the run that is asked about.

    All others: two replicas by lot, of which Serve takes the one with the shorter queue (Mitzenmacher 2001, "The
    power of two choices").
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Candidates by rank."""
        prefer = pending_request.kwargs.get("prefer", "") if pending_request is not None else ""
        home = [replica for replica in candidate_replicas if prefer and replica.replica_id.unique_id == prefer]
        if home:
            return [home]
        return [random.sample(candidate_replicas, min(2, len(candidate_replicas)))]
