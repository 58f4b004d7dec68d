"""The backend of a page, joined when it is first needed."""

from __future__ import annotations

import threading
from typing import Any

from lab.backend.connect import connect
from lab.backend.protocol import Backend
from lab.events import ModelFacts
from widgets.page_state import offered_model


class Connection:
    """Called from worker threads alone: the joining may take seconds.

    Args:
        backend: where to run; None joins a running `lab up`, else runs in this process.
    """

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend
        self._lock = threading.Lock()

    def backend(self) -> Backend:
        """The backend.

        Raises:
            LabError: it cannot be reached.
        """
        with self._lock:
            if self._backend is None:
                self._backend = connect()
            return self._backend

    def offers(self, experiment: str, model: str) -> tuple[list[ModelFacts], dict[str, Any] | None]:
        """The models that there are, and the schema of an experiment for one of them; None where it has none.

        Raises:
            LabError: it cannot be reached, or knows no such model.
        """
        backend = self.backend()
        models = backend.models()
        model = offered_model(model, models)
        schema = next((i.schema for i in backend.experiments(model) if i.name == experiment), None)
        return models, schema
