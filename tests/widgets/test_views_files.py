"""The front-end files stand alone: no import, no other host, no markup made from text, no fixed colours."""

from __future__ import annotations

import re

import pytest

from widgets import assets

JS = sorted(path.name for path in assets.STATIC.glob("*.js"))
CSS = sorted(path.name for path in assets.STATIC.glob("*.css"))


@pytest.mark.parametrize("name", JS)
def test_a_module_reaches_no_other_host_and_imports_nothing(name: str) -> None:
    text = assets.read(name)
    assert "https://" not in text
    assert set(re.findall(r"http://[^\"'`\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"^\s*import\b|\bimport\s*\(|\brequire\s*\(", text, re.M)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


@pytest.mark.parametrize("name", sorted(set(CSS) - {"tokens.css"}))
def test_a_style_sheet_uses_the_look_s_variables_only(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", assets.read(name), flags=re.S)
    assert "url(" not in text
    assert "@import" not in text
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[^{}]*[;}])", text) == []
    known = set(re.findall(r"(--lab-[a-z0-9-]+):", assets.read("tokens.css")))
    assert set(re.findall(r"var\((--lab-[a-z0-9-]+)", text)) <= known


def _contrast(first: str, second: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    a, b = light(first), light(second)
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_look_has_its_contrasts(theme: str) -> None:
    blocks = re.findall(r"\{([^}]*)\}", re.sub(r"/\*.*?\*/", "", assets.read("tokens.css"), flags=re.S))
    values = dict(re.findall(r"--lab-([a-z0-9-]+):\s*(#[0-9a-f]{6})", blocks[0]))
    if theme == "dark":
        values |= dict(re.findall(r"--lab-([a-z0-9-]+):\s*(#[0-9a-f]{6})", blocks[1]))
    for ground in ("bg", "surface", "sunken"):
        for text in ("text", "muted", "accent"):
            assert _contrast(values[text], values[ground]) >= 4.5, (text, ground)
    for status in ("accepted", "rejected", "resampled", "bonus"):
        assert _contrast(values["text"], values[f"{status}-soft"]) >= 4.5
        assert _contrast(values[f"{status}-edge"], values["surface"]) >= 3, status
        assert _contrast(values[f"{status}-edge"], values[f"{status}-soft"]) >= 2.8, status
