// Two runs in one table: {label, first, heads: [a, b], against, rows: [{name, a, b, against, badge, shares}]}.
// `shares` are the lengths of the bars of A and B in 0..1; null: none. The figures stand in cells: the bars repeat them.

const SIDE_MARKS = [
  ["circle", { cx: 5, cy: 5, r: 4 }],
  ["rect", { x: 1, y: 1, width: 8, height: 8 }],
];

function makeSideMark(i) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  setAttr(svg, "viewBox", "0 0 10 10");
  setAttr(svg, "aria-hidden", "true");
  const [kind, place] = SIDE_MARKS[i];
  const mark = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(place)) setAttr(mark, key, value);
  mark.style.fill = `var(--lab-series-${i + 1})`;
  svg.append(mark);
  return svg;
}

function render({ model, el }) {
  const table = make("table", "lab-sides");
  const head = make("tr");
  const body = make("tbody");
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  el.replaceChildren(table);

  function makeRow() {
    const row = make("tr");
    row.name = make("th");
    row.name.scope = "row";
    row.text = make("bdi");
    row.name.append(row.text);
    row.bars = make("td", "lab-sides-bars");
    setAttr(row.bars, "aria-hidden", "true");
    row.lengths = [1, 2].map((series) => {
      const bar = make("span", "lab-sides-bar");
      bar.dataset.series = series;
      row.bars.append(bar);
      return bar;
    });
    row.sides = ["a", "b"].map((side) => {
      const cell = make("td", "lab-sides-value");
      cell.dataset.side = side;
      cell.words = make("bdi");
      cell.append(cell.words);
      return cell;
    });
    row.against = make("td", "lab-sides-value lab-sides-against");
    row.from = make("td", "lab-sides-from");
    row.badge = make("span", "lab-badge");
    row.from.append(row.badge);
    row.append(row.name, row.bars, ...row.sides, row.against, row.from);
    return row;
  }

  return follow(model, el, "lab-side-by-side", (state) => {
    const rows = state.rows ?? [];
    const figures = Boolean(state.against);
    table.hidden = rows.length === 0;
    setAttr(table, "aria-label", state.label || "Both runs");
    el.dataset.figures = String(figures);
    const heads = [state.first ?? "", null, ...(state.heads ?? ["A", "B"]), state.against || null, figures ? "from" : null];
    keyed(head, heads, (_text, i) => i, (_text, i) => {
      const cell = make(i === 1 ? "td" : "th");
      if (i !== 1) cell.scope = "col";
      if (i === 2 || i === 3) cell.append(makeSideMark(i - 2));
      cell.words = make("span", i === 5 ? "lab-hidden" : "");
      cell.append(cell.words);
      if (i > 1) cell.classList.add("lab-sides-value");
      return cell;
    }, (cell, text, i) => {
      setText(cell.words, text);
      cell.hidden = (i === 1 || i > 3) && !figures;
    });
    keyed(body, rows, (row, i) => row.id ?? i, makeRow, (node, row) => {
      setText(node.text, row.name);
      node.sides.forEach((cell, i) => setText(cell.words, i ? row.b : row.a));
      setText(node.against, row.against);
      setText(node.badge, row.badge);
      node.badge.dataset.badge = row.badge ?? "";
      node.badge.hidden = !row.badge;
      node.bars.hidden = node.against.hidden = node.from.hidden = !figures;
      node.lengths.forEach((bar, i) => {
        const share = row.shares?.[i];
        bar.hidden = typeof share !== "number";
        bar.style.width = `${(Math.max(0, Math.min(1, share ?? 0)) * 100).toFixed(1)}%`;
      });
    });
  });
}

export default { render };
