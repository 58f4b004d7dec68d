"""The form of an experiment, drawn from its JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from lab.strings import Strings, strings
from widgets.view import Message, View, integer

GROUPS = ("main", "sampling", "compare", "break")


class Controls(View):
    """Sliders, boxes and choices as the schema's hints ask for, in its groups.

    The page checks ranges by the schema and says in words what is wrong; it sends a value only when it fits.

    Args:
        schema: a JSON schema; each property has title, description, default, limits, `hint` and `group`,
            and optionally `unit`, `labels`, `step`, `when` and `disabled` (a reason).
        values: by field; those not named have the schema's default.
        presets: `{"question": ..., "params": {...}}`, shown as chips below the first text.
        models: `{"id": ..., "label": ...}`; a choice is shown when there are two or more.
        groups: which of the schema's groups this form shows.
        words: the language of the presets' questions; the form itself is in English.
    """

    module: ClassVar[str] = "controls"
    defaults: ClassVar[Mapping[str, Any]] = {
        "schema": {},
        "values": {},
        "presets": [],
        "models": [],
        "model": "",
        "groups": GROUPS,
        "disabled": False,
        "errors": {},
        "words": {},
    }

    def __init__(
        self,
        *,
        schema: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        presets: Sequence[Mapping[str, Any]] = (),
        models: Sequence[Mapping[str, str]] = (),
        model: str = "",
        groups: Sequence[str] = GROUPS,
        words: Strings | None = None,
    ) -> None:
        words = words or strings()
        self._others: list[Controls] = []
        self._hearers: list[Callable[[dict[str, Any]], None]] = []
        self.invalid: tuple[str, ...] = ()
        said = {"lang": words.language, "questions": words("page.questions")}
        super().__init__(
            schema=schema or {},
            values=values or {},
            presets=presets,
            models=models,
            model=model,
            groups=groups,
            words=said,
        )
        self._listen("values", self._take)

    @property
    def values(self) -> dict[str, Any]:
        """The values by field, as last sent by the page or set here."""
        return dict(self.state["values"])

    def update(self, **changes: Any) -> None:
        """Change `schema`, `values`, `presets`, `models`, `model`, `disabled` or `errors` in one step."""
        self._put(**changes)
        changes.pop("groups", None)
        for other in self._others:
            other.update(**changes)

    def set_schema(self, schema: Mapping[str, Any]) -> None:
        """Show another schema, or the same narrowed to a model."""
        self.update(schema=schema)

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show these values; what a visitor is typing stays until they differ from what the page sent."""
        self.update(values=values)

    def set_errors(self, errors: Mapping[str, str]) -> None:
        """Show an error under each named field."""
        self.update(errors=errors)

    def set_disabled(self, disabled: bool) -> None:
        """Lock or unlock the whole form."""
        self.update(disabled=disabled)

    def part(self, *groups: str) -> Controls:
        """The same form's other groups as a widget of their own, to stand elsewhere on the page.

        Values, schema and callbacks are shared: callbacks registered on this one hear both.
        """
        state = self.state
        other = Controls(schema=state["schema"], values=state["values"], groups=groups)
        other._listen("values", self._take_from_part)
        self._others.append(other)
        return other

    def on_values(self, callback: Callable[[dict[str, Any]], None]) -> None:
        """Call `callback(changed)` with the fields that a visitor changed, where they fit the schema's limits.

        It is called with none when only what is invalid changed.
        """
        self._hearers.append(callback)

    def on_preset(self, callback: Callable[[int], None]) -> None:
        """Call `callback(index)` when a preset is chosen."""

        def heard(message: Message) -> None:
            index = integer(message, "index")
            if index is not None and 0 <= index < len(self.state["presets"]):
                callback(index)

        self._listen("preset", heard)

    def on_model(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` when another model is chosen."""

        def heard(message: Message) -> None:
            if any(model["id"] == message.get("id") for model in self.state["models"]):
                callback(str(message["id"]))

        self._listen("model", heard)

    def _take(self, message: Message) -> None:
        fields = self.state["schema"].get("properties", {})
        invalid = message.get("invalid")
        self.invalid = tuple(name for name in invalid if name in fields) if isinstance(invalid, list) else ()
        changed = message.get("changed")
        known = {k: v for k, v in changed.items() if k in fields} if isinstance(changed, dict) else {}
        # Those who hold the values hear first: whoever redraws this form from them in between draws the new ones.
        for hearer in self._hearers:
            hearer(dict(known))
        if known:
            errors = {name: text for name, text in self.state["errors"].items() if name not in known}
            self.update(values={**self.state["values"], **known}, errors=errors)

    def _take_from_part(self, message: Message) -> None:
        self._receive(self, message, None)
