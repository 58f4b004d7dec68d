"""The picture of the `beam_search` page's poster: the best text, figures, the whole tree, the shelf."""

from __future__ import annotations

from html import escape

from lab.events import Recording
from lab.events.beam_search import Node
from widgets.beam_search.figures import best_text, headline
from widgets.beam_search.shelf import shelf_rows
from widgets.beam_search.state import BeamState
from widgets.poster import THUMBNAIL, visible

WIDTH, ROW, TOP, LEFT = 640.0, 13.0, 12.0, 8.0


def body(recording: Recording) -> str:
    """What stands in the picture, as HTML; all text of the model is escaped."""
    state = BeamState()
    for event in recording.events:
        state.fold(event)
    return f"""<div class="lab-poster-strip">{_chips(state)}</div>
<div class="lab-poster-figs">{_figures(state)}</div>
<figure>{tree_svg(state)}</figure>
{_shelf(state)}"""


def thumbnail(recording: Recording) -> str:
    """The tree, for a card."""
    state = BeamState()
    for event in recording.events:
        state.fold(event)
    return tree_svg(state, THUMBNAIL)


def _chips(state: BeamState) -> str:
    prompt = state.prompt.texts if state.prompt else ()
    chips = [f'<span class="prompt">{visible(text)}</span>' for text in prompt]
    best = state.best_at(len(state.steps) - 1)
    return "".join([*chips, *(f"<span>{visible(node.text)}</span>" for node in state.path(best))])


def _figures(state: BeamState) -> str:
    shown = [f for f in headline(state, len(state.steps) - 1) if f["value"]]
    return "".join(f"<div><b>{escape(f['value'])}</b><small>{escape(f['unit'])}</small></div>" for f in shown)


def _shelf(state: BeamState) -> str:
    rows = shelf_rows(state, len(state.steps) - 1)[:4]
    style = "font:12px/1.6 var(--lab-mono);margin:0 0 18px;padding:0 0 0 24px"
    items = "".join(
        f'<li><span style="float:right">{escape(row["formula"])}</span>{escape(_cut(row["text"]))}</li>' for row in rows
    )
    return f'<ol style="{style}">{items}</ol>' if items else ""


def _cut(text: str, most: int = 42) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def tree_svg(state: BeamState, size: tuple[int, int] | None = None) -> str:
    """The kept and finished nodes of all steps as a tree: the best text straight along the top, the rest below.

    Args:
        size: width and height, pixels; None takes the page's width and as much height as the rows need.
    """
    nodes = [n for n in state.nodes.values() if n.fate != "pruned"]
    if not nodes:
        return ""
    rows = _rows(state, nodes)
    steps = len(state.steps)
    wide, height = size or (WIDTH, TOP * 2 + ROW * max(rows.values()))
    row = (height - 2 * TOP) / max(1, *rows.values())
    best = {n.id for n in state.path(state.best_at(steps - 1))}
    shelf = {n.id for h in state.steps[-1].shelf for n in state.path(h.node)}
    column = (wide - 2 * LEFT - 10) / max(steps, 1)

    def place(node: int) -> tuple[float, float]:
        step = state.step_of.get(node, -1)
        return LEFT + (step + 1) * column, TOP + row * rows.get(node, 0)

    edges, dots = [], []
    for node in sorted(nodes, key=lambda n: (n.id in best, n.id in shelf)):
        colour = "accent" if node.id in best else "accepted-edge" if node.id in shelf else "line"
        (x0, y0), (x1, y1) = place(node.parent), place(node.id)
        width = 2.5 if node.id in best else 1.5
        bend = f"C{x1 - 6:.1f} {y0:.1f} {x1 - 8:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        edges.append(
            f'<path d="M{x0:.1f} {y0:.1f}{bend}" fill="none" stroke="var(--lab-{colour})" stroke-width="{width}"/>'
        )
        fill = f"var(--lab-{colour})" if node.id in shelf else "var(--lab-muted)"
        dots.append(f'<circle cx="{x1:.1f}" cy="{y1:.1f}" r="{3 if node.id in shelf else 2}" fill="{fill}"/>')
    best_score = best_text(state, steps - 1)
    label = f"A search tree of {steps} steps with {state.num_beams} beams"
    label += f"; the best text has {best_score.length} tokens" if best_score else ""
    return (
        f'<svg viewBox="0 0 {wide:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(edges)}{''.join(dots)}</svg>"
    )


def _rows(state: BeamState, nodes: list[Node]) -> dict[int, int]:
    """A row for each node: as high as its column has room, not above its parent; see `beam_layout.js`."""
    best = {n.id for n in state.path(state.best_at(len(state.steps) - 1))}
    reach = {n.id: state.step_of[n.id] for n in nodes}
    children: dict[int, list[Node]] = {}
    for node in sorted(nodes, key=lambda n: -n.id):
        children.setdefault(node.parent, []).append(node)
        if node.parent in reach:
            reach[node.parent] = max(reach[node.parent], reach[node.id])
    rows: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack = [-1]
    while stack:
        node_id = stack.pop()
        if node_id in state.nodes:
            step, parent = state.step_of[node_id], state.nodes[node_id].parent
            rows[node_id] = max(rows.get(parent, 0), lowest.get(step, -1) + 1)
            lowest[step] = rows[node_id]
        ordered = sorted(children.get(node_id, ()), key=lambda n: (n.id in best, reach[n.id], -n.rank))
        stack += [n.id for n in ordered]
    return rows
