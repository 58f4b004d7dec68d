"""Everything that a visitor can do, done once in advance: what then differs from the page at first.

A *slot* is one kind of message of one view: a player's steps, a strip's hover. For each of its options the rehearsal
keeps the values of all places that any of them changes, so that an option decides all of the slot's places. Two slots
stand together in the file only where pairs of their options were tried and the page is what the later one makes of the
earlier one's; else the later one ends the earlier one. So whatever the file shows, the page has shown.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from widgets.exported.offers import Offer, offers
from widgets.exported.still import Snapshot, StillPage
from widgets.view import View

Place = tuple[int, ...] | tuple[Any, ...]
"""A widget's number and the path in what it shows, such as (7, "state", "data", "bytes")."""
Changes = dict[Place, Any]
TRIED_APART = 1
TRIED = 3
"""Options of each of two slots that are tried together, spread over all that there are."""
ABSENT: Any = {"$": "absent"}
"""Stands for a place that is not there."""


@dataclass
class Slot:
    """One kind of message of one view and what its options show.

    Attributes:
        view: the number of the view that sends it.
        places: all that any option changes.
        options: for each key, the values of `places`.
    """

    view: int
    offer: Offer
    places: list[Place] = field(default_factory=list)
    options: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class Rehearsal:
    """What an exported page is drawn from.

    Attributes:
        together: pairs of slots' indices, (earlier, later), that may stand together.
        unmoved: numbers of forms and names of their fields that cannot be used in the file.
    """

    base: Snapshot
    slots: list[Slot]
    together: list[tuple[int, int]]
    unmoved: list[tuple[int, str]]


def rehearse(page: StillPage) -> Rehearsal:
    """Try all that the page offers. The page is afterwards as it was."""
    base = page.snapshot()
    slots, unmoved = [], []
    for number, view in [(n, w) for n, w in enumerate(page.known) if isinstance(w, View)]:
        found = offers(view)
        for offer in found:
            slot = _slot(page, base, number, offer)
            if slot is not None:
                slots.append(slot)
        if view.module == "controls":
            moved = {slot.offer.kind for slot in slots if slot.view == number}
            names = view.state["schema"].get("properties", {})
            unmoved += [(number, name) for name in names if f"values.{name}" not in moved]
    together = _pairs(page, base, slots)
    later = {number: page.shown(widget) for number, widget in enumerate(page.known) if number not in base}
    return Rehearsal(base | later, slots, together, unmoved)


def _pairs(page: StillPage, base: Snapshot, slots: list[Slot]) -> list[tuple[int, int]]:
    """Which slots may stand together, in which order. Slots that share no place are tried once, for both orders."""
    found = []
    for a, earlier in enumerate(slots):
        for b, later in enumerate(slots):
            apart = not any(_covered(place, earlier.places) for place in later.places) and not any(
                _covered(place, later.places) for place in earlier.places
            )
            if a == b or earlier.offer.passing or (apart and b < a and not later.offer.passing):
                continue
            if earlier.view == later.view and earlier.offer.of_form:  # fields of one form make one question
                continue
            if _stand_together(page, base, earlier, later, TRIED_APART if apart else TRIED):
                found += [(a, b), (b, a)] if apart and not later.offer.passing else [(a, b)]
    return found


def _slot(page: StillPage, base: Snapshot, number: int, offer: Offer) -> Slot | None:
    """The slot, or None where nothing changes or the page does not come back from it."""
    view = page.view(number)
    changes: dict[str, Changes] = {}
    for key, message in offer.messages.items():
        page.send(view, message)
        changes[key] = differences(base, page.snapshot())
        page.send(view, offer.off)  # each begins at the page at first: an empty picture keeps the axis of the last one
    left = differences(base, page.snapshot())
    places = sorted({place for change in changes.values() for place in change}, key=repr)
    if not places or left:
        return None
    places = [p for p in places if not any(p[:n] in set(places) for n in range(1, len(p)))]
    options = {key: [_at(base, change, place) for place in places] for key, change in changes.items()}
    return Slot(number, offer, places, options)


def _at(base: Snapshot, change: Changes, place: Place) -> Any:
    """The value at a place of a page that differs from `base` by `change`."""
    if place in change:
        return change[place]
    value = look(base, place)
    for deeper, new in change.items():
        if deeper[: len(place)] == place:
            value = _put(value, deeper[len(place) :], new)
    return value


def _put(value: Any, path: Place, new: Any) -> Any:
    if not path:
        return new
    kept = dict(value) if isinstance(value, dict) else {}
    kept[path[0]] = _put(kept.get(path[0]), path[1:], new)
    if kept[path[0]] is ABSENT:
        del kept[path[0]]
    return kept


def look(shown: Snapshot, place: Place) -> Any:
    """The value at a place, `ABSENT` where there is none."""
    value: Any = shown
    for key in place:
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def differences(old: Snapshot, new: Snapshot) -> Changes:
    """The places where `new` differs and their values; a widget that is new has none to compare with."""
    return dict(_differ((), old, {number: new.get(number, shown) for number, shown in old.items()})) | {
        (number,): shown for number, shown in new.items() if number not in old
    }


def _differ(place: Place, old: Any, new: Any) -> Iterator[tuple[Place, Any]]:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differ((*place, key), old.get(key, ABSENT), new.get(key, ABSENT))
    elif old != new:
        yield place, new


def _stand_together(page: StillPage, base: Snapshot, earlier: Slot, later: Slot, count: int) -> bool:
    """Whether, wherever it is tried, the page is the earlier's option with the later's on top of it."""
    first, second = page.view(earlier.view), page.view(later.view)
    good, tried = True, 0
    for a in _spread(earlier.options, count):
        page.send(first, earlier.offer.messages[a])
        there = next((o.messages for o in offers(second) if o.kind == later.offer.kind), {})
        for b in _spread([key for key in later.options if key in there], count):
            page.send(second, later.offer.messages[b])
            expected = dict(zip(earlier.places, earlier.options[a], strict=True))
            expected |= dict(zip(later.places, later.options[b], strict=True))
            now = page.snapshot()
            seen = differences(base, now)
            good = good and all(_covered(place, expected) for place in seen)
            good = good and all(look(now, place) == value for place, value in expected.items())
            tried += 1
            page.send(second, later.offer.off)
            if not good:
                break
        page.send(first, earlier.offer.off)
        if not good:
            break
    if differences(base, page.snapshot()):
        page.send(second, later.offer.off)
        page.send(first, earlier.offer.off)
    return good and tried > 0


def _covered(place: Place, expected: Collection[Place]) -> bool:
    return any(place[:n] in expected for n in range(1, len(place) + 1))


def _spread(keys: Collection[str], count: int) -> list[str]:
    """At most `count` of these, from the first to the last; one alone is from the middle."""
    found = list(keys)
    if len(found) <= count:
        return found
    return (
        [found[i * (len(found) - 1) // max(1, count - 1)] for i in range(count)]
        if count > 1
        else [found[len(found) // 2]]
    )


def as_json(value: Any) -> str:
    """Compact JSON, the same for the same value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
