// A table whose rows have bars: {label, first, columns: [[text, series]], rows, most, low, ticks, least, line: [value, text], empty}.
// The figures stand in cells, so that the table says the same without its bars. With `low` above 0 the scale is one of
// powers of ten from `low` to `most`: a length has no beginning there, so a mark at the end of a thin line stands for it.

const BAR_MARKS = { accepted: "✓", rejected: "✕", resampled: "↻", bonus: "+", plain: "○" };
const BAR_WORDS = { accepted: "accepted", rejected: "proposed, rejected", resampled: "drawn instead", bonus: "drawn", plain: "drawn" };

const TICK_GAP = 8; // pixels between the words of two ticks

/** Show as many ticks as have room: all, else the powers of ten, else every second, third ... of them. */
function thin(box, ticks) {
  const nodes = [...box.children];
  for (const node of nodes) node.hidden = false;
  const places = nodes.map((node) => node.getBoundingClientRect());
  const all = nodes.map((_node, i) => i);
  const powers = all.filter((i) => Number.isInteger(Math.round(Math.log10(ticks[i]?.[0]) * 1e6) / 1e6));
  const few = powers.length > 1 ? powers : all;
  const apart = (shown) => shown.every((at, n) => n === 0 || places[at].left - places[shown[n - 1]].right >= TICK_GAP);
  const tries = [all, ...few.map((_at, n) => few.filter((_i, k) => k % (n + 1) === 0))];
  const shown = new Set(tries.find(apart));
  nodes.forEach((node, i) => { node.hidden = !shown.has(i); });
}

function render({ model, el }) {
  const table = make("table", "lab-bars");
  const head = make("thead");
  const headRow = make("tr");
  const body = make("tbody");
  const foot = make("tfoot");
  const footRow = make("tr");
  const ticks = make("td", "lab-bars-ticks");
  const empty = make("p", "lab-bars-empty");
  head.append(headRow);
  setAttr(foot, "aria-hidden", "true");
  footRow.append(make("td"), ticks);
  foot.append(footRow);
  table.append(head, body, foot);
  el.replaceChildren(table, empty);
  const picture = (model.get("state") ?? {}).picture;
  if (picture) offerPicture(el, table, picture);

  const part = (value, { low, most }) => (low > 0 ? Math.log(Math.max(value ?? 0, low) / low) / Math.log(most / low) : (value ?? 0) / most);
  const share = (value, state) => `${(Math.max(0, Math.min(1, part(value, state))) * 100).toFixed(2)}%`;

  function makeRow() {
    const row = make("tr");
    row.name = make("th");
    row.name.scope = "row";
    row.text = make("bdi");
    row.mark = make("i");
    setAttr(row.mark, "aria-hidden", "true");
    row.kindWord = make("span", "lab-hidden");
    row.name.append(row.mark, row.text, row.kindWord);
    row.bars = make("td", "lab-bars-cell");
    row.note = make("span", "lab-bars-note");
    row.track = make("div", "lab-bars-track");
    setAttr(row.track, "aria-hidden", "true");
    row.bars.append(row.track, row.note);
    row.append(row.name, row.bars);
    return row;
  }

  function drawRow(row, item, state) {
    const key = JSON.stringify([item, state.most, state.low, state.ticks, state.line, state.columns]);
    if (row.labKey === key) return;
    row.labKey = key;
    setText(row.text, item.label);
    row.title = item.title || "";
    row.dataset.kind = item.kind || "";
    row.name.classList.toggle("lab-mono", Boolean(item.mono));
    setText(row.mark, BAR_MARKS[item.kind] ?? "");
    setText(row.kindWord, BAR_WORDS[item.kind] ? `, ${BAR_WORDS[item.kind]}` : "");
    setText(row.note, item.note);
    row.note.hidden = !item.note;
    row.track.hidden = Boolean(item.note);
    row.track.replaceChildren();
    if (!item.note) {
      for (const [value] of state.ticks ?? []) {
        const tick = make("span", "lab-bars-grid");
        tick.style.left = share(value, state);
        row.track.append(tick);
      }
      row.track.dataset.bars = item.bars.length;
      for (const [value, series] of item.bars) {
        const bar = make("span", "lab-len");
        bar.dataset.series = series;
        bar.style.width = share(value, state);
        row.track.append(bar);
      }
      for (const [value, words] of item.dots ?? []) {
        const dot = make("span", "lab-len-dot");
        dot.style.left = share(value, state);
        dot.title = words;
        row.track.append(dot);
      }
      if (state.line) {
        const line = make("span", "lab-len-line");
        line.style.left = share(state.line[0], state);
        row.track.append(line);
      }
    }
    for (const cell of [...row.querySelectorAll("td.lab-bars-figure")]) cell.remove();
    item.cells.forEach((text, i) => {
      const cell = make("td", "lab-bars-figure lab-number", text);
      cell.dataset.head = state.columns?.[i]?.[0] ?? "";
      row.append(cell);
    });
  }

  const stop = follow(model, el, "lab-bar-table", (state) => {
    const rows = state.rows ?? [];
    table.hidden = rows.length === 0;
    el.style.minHeight = rows.length && state.least ? `${(state.least + 1) * 24.8}px` : "";
    table.classList.toggle("lab-bars-log", state.low > 0);
    setAttr(table, "aria-label", state.label || "Bars");
    setText(empty, state.empty);
    empty.hidden = rows.length > 0 || !state.empty;
    const heads = [[state.first, 0], [state.line?.[1] ?? "", -1], ...(state.columns ?? [])];
    keyed(headRow, heads, (_cell, i) => i, () => {
      const cell = make("th");
      cell.scope = "col";
      cell.swatch = make("i", "lab-bars-swatch");
      cell.words = make("span");
      cell.append(cell.swatch, cell.words);
      return cell;
    }, (cell, [text, series], i) => {
      setText(cell.words, text);
      cell.swatch.hidden = series < 1;
      cell.swatch.dataset.series = series;
      cell.classList.toggle("lab-number", i > 1);
      cell.classList.toggle("lab-bars-line-name", i === 1);
      // The name moves along with its line, so that it ends with the bars rather than in the next column.
      cell.words.style.left = i === 1 && state.line ? share(state.line[0], state) : "";
      cell.words.style.transform = i === 1 && state.line ? `translateX(-${share(state.line[0], state)})` : "";
    });
    foot.hidden = (state.ticks ?? []).length === 0;
    ticks.nextSibling?.remove();
    if (state.columns?.length) {
      const rest = make("td");
      rest.colSpan = state.columns.length;
      footRow.append(rest);
    }
    keyed(ticks, state.ticks ?? [], (_tick, i) => i, () => make("span"), (node, [value, text]) => {
      setText(node, text);
      node.style.left = share(value, state);
    });
    keyed(body, rows, (_row, i) => i, makeRow, (row, item) => drawRow(row, item, state));
    thin(ticks, state.ticks ?? []);
  });
  const watch = new ResizeObserver(() => thin(ticks, (model.get("state") ?? {}).ticks ?? []));
  watch.observe(ticks);
  return () => {
    watch.disconnect();
    stop();
  };
}

export default { render };
