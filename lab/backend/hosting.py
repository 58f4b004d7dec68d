"""What a hosted lab allows its visitors: one class of settings, read from a TOML file by `lab up --hosted`.

The processes of one lab hand them on as JSON in the environment (`LAB_HOSTED`).
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lab.backend.limits import MIB, Limits
from lab.backend.protocol import DEFAULT_MODEL
from lab.backend.validation import explained
from lab.errors import BadInput

HOSTED = "LAB_HOSTED"
"""Environment variable: the settings as JSON; absent where the lab is not hosted."""
MAX_FILE_BYTES = 64 * 1024
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?")


class HostedSettings(BaseModel):
    """Settings of a hosted lab. Seconds, MiB, counts; a minute's counts are of one address or one page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[str, ...] = Field(
        (DEFAULT_MODEL,),
        min_length=1,
        max_length=64,
        description="Models that visitors may use, as `--model` takes them; the first one is loaded ahead. All others "
        "are refused: paths, hub ids, files.",
    )
    adapters: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="Names of adapters that the operator kept on this machine, offered beside the packaged one.",
    )
    login: Literal["token", "none"] = Field(
        "token",
        description="`token`: a visitor needs the link that `lab up` prints (LAB_PAGE_TOKEN sets its token). `none`: "
        "only behind a proxy that asks who comes; refused on any address but loopback.",
    )
    base_url: str = Field(
        "/", pattern=r"^/([A-Za-z0-9._~-]+/)*$", max_length=200, description="Path under which the pages lie."
    )
    behind_proxy: bool = Field(
        False,
        description="A reverse proxy on this machine says in X-Real-IP and X-Forwarded-Proto who came and how. Without "
        "one, anybody could say so.",
    )
    framed_by: tuple[str, ...] = Field(
        (), max_length=16, description="Sites that may show the pages in a frame, as `https://HOST`; none."
    )
    visitors: int = Field(
        30, ge=1, le=1000, description="Pages open at one time; each has a kernel. More are told when to come back."
    )
    pages_per_minute: int = Field(
        60, ge=1, le=10_000, description="Pages that one address may open; a class behind one router is one address."
    )
    logins_per_minute: int = Field(10, ge=1, le=10_000, description="Tokens that one address may try in the form.")
    runs_per_minute: int = Field(30, ge=1, le=10_000, description="Runs that one page may start.")
    questions_per_minute: int = Field(
        900, ge=1, le=100_000, description="Questions that one page may ask; a moving slider asks many."
    )
    upload_mib_per_minute: int = Field(
        16, ge=1, le=10_000, description="What one page may send, all messages together; then it is cut off."
    )
    message_mib: int = Field(4, ge=1, le=1024, description="The largest message of a page.")
    active_runs: int = Field(4, ge=1, le=64, description="Runs that take turns.")
    waiting_runs: int = Field(32, ge=0, le=1000, description="Runs that may wait; more are told when to come back.")
    deadline_s: float = Field(300.0, ge=1.0, le=86_400.0, description="How long a run may take, other runs included.")
    prompt_characters: int = Field(8000, ge=1, le=1_000_000, description="The longest prompt or pasted text.")
    new_tokens: int = Field(256, ge=1, le=100_000, description="The most new tokens of a run.")
    loaded_models: int = Field(2, ge=1, le=64, description="Models kept in memory.")
    stored_mib: int = Field(
        256,
        ge=0,
        le=1_000_000,
        description="Recordings of finished runs on disk, for the next run with the same card; 0 keeps none.",
    )
    idle_s: int = Field(
        300,
        ge=1,
        le=86_400,
        description="A kernel whose page fell silent ends after so long; a closed page's at once.",
    )
    page_s: int = Field(
        14_400, ge=1, le=604_800, description="A page's kernel ends after so long in any case, so that seats come free."
    )

    @field_validator("framed_by")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin such as https://school.example")
        return value

    def limits(self) -> Limits:
        """The model process's limits."""
        return Limits(
            active_runs=self.active_runs,
            waiting_runs=self.waiting_runs,
            deadline_s=self.deadline_s,
            prompt_characters=self.prompt_characters,
            new_tokens=self.new_tokens,
            models=self.loaded_models,
            stored_bytes=self.stored_mib * MIB,
        )


def read_settings(path: Path) -> HostedSettings:
    """The settings in a TOML file; what it does not name has its default.

    Raises:
        BadInput: it cannot be read, is no TOML, or has a name or a value that is not allowed.
    """
    try:
        with path.open("rb") as file:
            body = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror or error}.", remedy="Check the path.") from None
    if len(body) > MAX_FILE_BYTES:
        raise BadInput(f"{str(path)!r} has more than {MAX_FILE_BYTES:,} bytes.", remedy="Is it the right file?")
    try:
        values = tomllib.loads(body.decode("utf-8"))
    except ValueError as error:  # tomllib's own is one, and so is UTF-8's
        raise BadInput(f"{str(path)!r} is not TOML: {error}.", remedy="Write lines such as visitors = 30.") from None
    try:
        return HostedSettings.model_validate(values)
    except ValidationError as error:
        raise explained(error, HostedSettings.model_fields) from None


def hosted() -> HostedSettings | None:
    """The settings that the lab which started this process handed on; None where it is not hosted.

    Raises:
        BadInput: LAB_HOSTED holds something else.
    """
    text = os.environ.get(HOSTED, "").strip()
    if not text:
        return None
    try:
        return HostedSettings.model_validate_json(text)
    except ValidationError as error:
        raise explained(error, HostedSettings.model_fields) from None
