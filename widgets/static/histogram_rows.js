// Histograms one below the other on one axis: {label, axis, first, heads: [[text, title]], rows, low, high, cap, selected, locked, waiting}.
// See histogram_rows.py. Each row is two rows of a table: its figures, and below them the histogram over the whole width.

const SPACE_SVG = "http://www.w3.org/2000/svg";
const TALL = 50; // pixels that the largest bin takes
const FOOT = 13; // pixels below the base line, for marks

function draw(name, attributes, parent, text) {
  const node = document.createElementNS(SPACE_SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

/** Round numbers between two ends, about `count` of them. */
function ticksOf(low, high, count) {
  const raw = (high - low) / count;
  if (!(raw > 0) || !Number.isFinite(raw)) return [];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step); i <= Math.floor(high / step + 1e-9); i += 1) ticks.push(i * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return ticks.map((value) => [value, digits > 6 ? value.toExponential(1) : value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−")]);
}

const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;

function render({ model, el }) {
  const table = make("table", "lab-hist");
  const head = make("thead");
  const headRow = make("tr");
  head.append(headRow);
  const foot = make("tfoot");
  const axisRow = make("tr");
  const axisCell = make("td", "lab-hist-axis");
  axisRow.append(axisCell);
  foot.append(axisRow);
  const empty = make("p", "lab-hist-empty");
  table.append(head, foot);
  el.replaceChildren(table, empty);
  const picture = (model.get("state") ?? {}).picture;
  if (picture) {
    el.classList.add("lab-has-picture");
    el.dataset.picture = picture;
    el.labPicture = (format, ground) => pictureOf(whole(), format, ground);
  }
  let width = 0;

  /** All of it as one SVG: words as they stand on the page, and the histograms between them. */
  function whole() {
    const svg = domPicture(table);
    const frame = table.getBoundingClientRect();
    for (const part of table.querySelectorAll("svg")) {
      const box = part.getBoundingClientRect();
      const group = draw("g", { transform: `translate(${box.left - frame.left + 8} ${box.top - frame.top + 8})` }, svg);
      for (const child of part.children) {
        const copy = child.cloneNode(true);
        const [from, to] = [[child, ...child.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
        from.forEach((node, i) => {
          const style = getComputedStyle(node);
          to[i].setAttribute("style", ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "text-anchor", "opacity"].map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
        });
        group.append(copy);
      }
    }
    return svg;
  }

  function makeGroup(row) {
    const body = make("tbody", "lab-hist-row");
    const figures = make("tr", "lab-hist-figures");
    const name = make("th");
    name.scope = "row";
    body.button = makeButton("lab-hist-name", "", () => post(model, { type: "row", id: body.rowId }));
    name.append(body.button);
    figures.append(name);
    const drawn = make("tr");
    body.cell = make("td", "lab-hist-picture");
    body.svg = draw("svg", { class: "lab-hist-svg" }, body.cell);
    drawn.append(body.cell);
    body.cell.addEventListener("click", (event) => {
      if (!event.target.closest?.(".lab-hist-dot")) post(model, { type: "row", id: body.rowId });
    });
    body.figures = figures;
    body.rowId = row.id;
    body.append(figures, drawn);
    return body;
  }

  function drawRow(body, row, state) {
    const wide = Math.max(120, width);
    const chosen = state.locked && state.locked[0] === row.id ? state.locked[1] : -1;
    const key = JSON.stringify([row, state.low, state.high, state.cap, state.log, wide, state.selected === row.id, chosen, state.heads]);
    if (body.labKey === key) return;
    body.labKey = key;
    body.rowId = row.id;
    const on = state.selected === row.id;
    body.classList.toggle("lab-on", on);
    setText(body.button, row.label);
    setAttr(body.button, "aria-pressed", on ? "true" : "false");
    while (body.figures.children.length > 1) body.figures.lastChild.remove();
    (state.heads ?? []).forEach(([text, title], i) => {
      const cell = make("td", "lab-number", row.cells[i] ?? "");
      cell.dataset.head = text;
      if (title) cell.title = title;
      body.figures.append(cell);
    });
    body.cell.colSpan = (state.heads?.length ?? 0) + 1;
    drawPicture(body.svg, row, state, wide, chosen);
  }

  function drawPicture(svg, row, state, wide, chosen) {
    const had = document.activeElement?.closest?.(".lab-hist-dot");
    const kept = had && svg.contains(had) ? Number(had.dataset.index) : -1;
    svg.replaceChildren();
    setAttr(svg, "viewBox", `0 0 ${wide} ${TALL + FOOT}`);
    setAttr(svg, "width", wide);
    setAttr(svg, "height", TALL + FOOT);
    setAttr(svg, "role", "group");
    setAttr(svg, "aria-label", `Histogram: ${row.label}`);
    const span = state.high - state.low || 1;
    const x = (value) => ((value - state.low) / span) * wide;
    const inside = (value) => value >= state.low && value <= state.high;
    const bins = row.counts.length;
    const total = row.counts.reduce((a, b) => a + b, 0) + row.below + row.above;
    const step = wide / Math.max(1, bins);
    const most = state.cap || 1;
    const height = (count) => (state.log ? (1 + Math.log10(count)) / (1 + Math.log10(most)) : count / most);
    const y = (count) => TALL - Math.min(1, height(count)) * (TALL - 4);
    draw("line", { x1: x(0), x2: x(0), y1: 0, y2: TALL, class: "lab-hist-zero" }, svg);
    let path = "";
    row.counts.forEach((count, i) => {
      if (!count) return;
      const top = Math.min(y(count), TALL - 1); // a single weight still shows
      path += `M${(i * step).toFixed(2)} ${TALL}V${top.toFixed(2)}H${((i + 1) * step).toFixed(2)}V${TALL}Z`;
    });
    draw("path", { d: path, class: "lab-hist-bars" }, svg);
    if (typeof row.bound === "number") {
      for (const side of [-1, 1]) {
        if (inside(side * row.bound)) draw("line", { x1: x(side * row.bound), x2: x(side * row.bound), y1: 2, y2: TALL, class: "lab-hist-bound" }, svg);
      }
    }
    draw("line", { x1: 0, x2: wide, y1: TALL + 0.5, y2: TALL + 0.5, class: "lab-hist-base" }, svg);
    if (typeof row.most === "number" && row.most > 0) {
      for (const side of [-1, 1]) {
        if (inside(side * row.most)) draw("line", { x1: x(side * row.most), x2: x(side * row.most), y1: TALL - 7, y2: TALL + 4, class: "lab-hist-most" }, svg);
      }
    }
    row.counts.forEach((count, i) => {
      if (count <= most || !total) return;
      const at = (i + 0.5) * step;
      draw("path", { d: `M${at - step} 7l${step * 2} -4`, class: "lab-hist-cut" }, svg);
      draw("text", { x: at + step + 3, y: 11, class: "lab-hist-words" }, svg, percent(count / total));
    });
    const edge = typeof row.bound === "number" && inside(-row.bound) ? x(-row.bound) : 0;
    if (row.note) draw("text", { x: edge < 90 ? edge + (edge ? 6 : 0) : 0, y: 11, class: "lab-hist-tick" }, svg, row.note);
    if (row.below) draw("text", { x: 2, y: TALL - 6, class: "lab-hist-words" }, svg, `‹ ${row.below.toLocaleString("en-GB")} more`);
    if (row.above) draw("text", { x: wide - 2, y: TALL - 6, class: "lab-hist-words lab-hist-end" }, svg, `${row.above.toLocaleString("en-GB")} more ›`);
    row.dots.forEach(([value, title], i) => {
      if (typeof value !== "number" || !inside(value)) return;
      const dot = draw("g", { class: "lab-hist-dot", role: "button", tabindex: i === 0 ? 0 : -1, "aria-label": title, "aria-pressed": i === chosen ? "true" : "false", "data-index": i }, svg);
      draw("title", {}, dot, title);
      draw("circle", { cx: x(value), cy: TALL + 6, r: 9, class: "lab-hist-room" }, dot);
      draw("circle", { cx: x(value), cy: TALL + 6, r: i === chosen ? 5 : 3.5, class: "lab-hist-mark" }, dot);
      const press = () => post(model, { type: "dot", id: row.id, index: i });
      dot.addEventListener("click", press);
      dot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          press();
        }
      });
    });
    if (!svg.labRoved) rove(svg, () => [...svg.querySelectorAll(".lab-hist-dot")]);
    svg.labRoved = true;
    if (kept >= 0) svg.querySelector(`[data-index="${kept}"]`)?.focus();
  }

  function drawAxis(state) {
    const wide = Math.max(120, width);
    axisCell.colSpan = (state.heads?.length ?? 0) + 1;
    axisCell.replaceChildren();
    const svg = draw("svg", { viewBox: `0 0 ${wide} 32`, width: wide, height: 32, role: "img", "aria-label": `${state.axis}, from ${state.low} to ${state.high}` }, axisCell);
    const span = state.high - state.low || 1;
    for (const [value, text] of ticksOf(state.low, state.high, Math.max(2, Math.min(8, Math.floor(wide / 90))))) {
      const at = ((value - state.low) / span) * wide;
      const anchor = at < 20 ? "lab-hist-start" : at > wide - 20 ? "lab-hist-end" : "lab-hist-middle";
      draw("text", { x: at, y: 12, class: `lab-hist-tick ${anchor}` }, svg, text);
    }
    draw("text", { x: wide, y: 28, class: "lab-hist-tick lab-hist-end" }, svg, state.axis ?? "");
  }

  function redraw(state) {
    const rows = state.rows ?? [];
    table.hidden = rows.length === 0;
    table.classList.toggle("lab-waiting-rows", Boolean(state.waiting));
    setAttr(table, "aria-label", state.label || "Histograms");
    setAttr(table, "aria-busy", state.waiting ? "true" : null);
    setText(empty, state.empty);
    empty.hidden = rows.length > 0 || !state.empty;
    keyed(headRow, [[state.first, ""], ...(state.heads ?? [])], (_head, i) => i, (_head, i) => {
      const cell = make("th", i ? "lab-number" : "");
      cell.scope = "col";
      return cell;
    }, (cell, [text, title]) => {
      setText(cell, text);
      cell.title = title ?? "";
    });
    const old = [...table.tBodies];
    const kept = new Map(old.map((body) => [body.rowId, body]));
    let place = foot;
    for (const row of [...rows].reverse()) {
      const body = kept.get(row.id) ?? makeGroup(row);
      kept.delete(row.id);
      if (body.nextSibling !== place) table.insertBefore(body, place);
      drawRow(body, row, state);
      place = body;
    }
    for (const body of kept.values()) body.remove();
    drawAxis(state);
  }

  const measure = () => {
    const now = Math.floor(el.getBoundingClientRect().width);
    if (now > 0 && now !== width) {
      width = now;
      redraw(model.get("state") ?? {});
    }
  };
  const watch = new ResizeObserver(measure);
  watch.observe(el);
  const stop = follow(model, el, "lab-histogram-rows", redraw);
  measure();
  return () => {
    watch.disconnect();
    stop();
  };
}

export default { render };
