// The parts of the drawn tree: chips with their marks, the lines between them, the keys of the legend.

const SVG_SPACE = "http://www.w3.org/2000/svg";

function shape(tag, className, parent) {
  const node = document.createElementNS(SVG_SPACE, tag);
  if (className) node.setAttribute("class", className);
  parent?.append(node);
  return node;
}

/** The line from a parent to a child: straight to the column's end, then bent. */
function edgePath(item, off = 0) {
  const from = item.parent;
  const [y0, y1, x1] = [from.y + CHIP / 2 + off, item.y + CHIP / 2 + off, item.x];
  if (from.column === item.column) {
    const way = item.row > from.row ? 1 : -1; // within a stretch: down or up its left edge
    const side = from.x - (way > 0 ? 0 : 6 + off / 2);
    return way > 0 ? `M${from.x + 9} ${from.y + CHIP}V${y1 - 5}q0 5 5 5H${x1}` : `M${from.x} ${y0}H${side + 3}q-3 0 -3 -3V${y1 + 3}q0 -3 3 -3H${x1}`;
  }
  const [x0, turn] = [from.x + from.w, from.column.x + from.column.width];
  if (y0 === y1) return `M${x0} ${y0}H${x1}`;
  const half = (x1 - turn) / 2;
  return `M${x0} ${y0}H${turn}C${turn + half} ${y0} ${x1 - half} ${y1} ${x1} ${y1}`;
}

/** A key of the legend: a button where it switches something, else words. */
function legendKey(state, words, onClick) {
  const node = onClick ? makeButton("lab-beam-key", "", onClick) : make("span", "lab-beam-key");
  const mark = make("i");
  mark.dataset.state = state;
  node.append(mark, make("span", "", words));
  return node;
}

/** An item's chip; `base` makes its id. */
function makeChip(item, base) {
  const node = shape("g", "lab-beam-node");
  node.box = shape("rect", "lab-beam-box", node);
  node.words = shape("text", "lab-beam-words", node);
  setAttr(node, "data-key", item.key);
  setAttr(node, "role", "treeitem");
  setAttr(node, "id", `${base}-${item.key}`);
  for (const [name, value] of Object.entries({ height: CHIP, rx: 4 })) setAttr(node.box, name, value);
  for (const [name, value] of Object.entries({ x: 7, y: 14 })) setAttr(node.words, name, value);
  node.extra = shape("g", "", node);
  setAttr(node.extra, "aria-hidden", "true");
  return node;
}

/** What can change on a chip. `at`: {lit, held, walked, index, state, passing}. */
function paintChip(node, item, { lit, held, walked, index, state, passing }) {
  setAttr(node, "transform", `translate(${item.x} ${item.y})`);
  setAttr(node, "data-state", item.state);
  setAttr(node, "data-stretch", Boolean(item.range));
  setAttr(node, "data-newest", item.state === "running" && item.depth === state.step);
  setAttr(node, "data-lit", lit.has(item));
  setAttr(node, "data-held", held.has(item));
  setAttr(node, "data-walked", item === walked);
  setAttr(node, "aria-level", item.depth + 2);
  setAttr(node, "aria-selected", item.last === state.locked ? "true" : "false");
  setAttr(node, "aria-expanded", item.hidden ? "false" : item.kids.length ? "true" : null);
  setAttr(node, "aria-label", spoken(index, item, state.prompt));
  setAttr(node.box, "width", item.w);
  setText(node.words, item.text);
  const kinds = [...(passing ?? [])].join(" ");
  const key = `${item.w} ${item.end} ${item.hidden} ${kinds}`;
  if (node.labKey === key) return;
  node.labKey = key;
  node.extra.replaceChildren();
  if (item.end) {
    const mark = shape("rect", "lab-beam-end", node.extra);
    for (const [name, value] of Object.entries({ x: item.w - 14, y: 6, width: 8, height: 8, rx: 1 })) setAttr(mark, name, value);
  }
  [...(passing ?? [])].forEach((kind, i) => {
    const mark = shape("path", "lab-beam-pass", node.extra);
    setAttr(mark, "data-kind", kind);
    setAttr(mark, "d", kind === "greedy" ? "M-4 0 0 -4 4 0 0 4Z" : "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z");
    setAttr(mark, "transform", `translate(${1 + i * 10} 0)`);
  });
  if (item.hidden) {
    const fold = shape("g", "lab-beam-fold", node.extra);
    setAttr(fold, "data-fold", "");
    setAttr(fold, "transform", `translate(${item.w + 4} 2)`);
    const box = shape("rect", "", fold);
    for (const [name, value] of Object.entries({ width: item.mark, height: 16, rx: 8 })) setAttr(box, name, value);
    const words = shape("text", "", fold);
    setAttr(words, "x", item.mark / 2);
    setAttr(words, "y", 11.5);
    setText(words, `+${item.hidden}`);
    setText(shape("title", "", fold), `${item.hidden} candidates that lost: show them`);
  }
}
