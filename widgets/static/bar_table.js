// A table whose rows have bars: {label, first, columns: [[text, series]], rows, most, line: [value, text], empty}.
// The figures stand in cells, so that the table says the same without its bars.

const BAR_MARKS = { accepted: "✓", rejected: "✕", resampled: "↻", bonus: "+", plain: "○" };
const BAR_WORDS = { accepted: "accepted", rejected: "proposed, rejected", resampled: "drawn instead", bonus: "drawn", plain: "drawn" };

function render({ model, el }) {
  const table = make("table", "lab-bars");
  const head = make("thead");
  const headRow = make("tr");
  const body = make("tbody");
  const empty = make("p", "lab-bars-empty");
  head.append(headRow);
  table.append(head, body);
  el.replaceChildren(table, empty);
  const picture = (model.get("state") ?? {}).picture;
  if (picture) offerPicture(el, table, picture);

  const share = (value, most) => `${(Math.max(0, Math.min(1, (value ?? 0) / most)) * 100).toFixed(2)}%`;

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
    const key = JSON.stringify([item, state.most, state.line]);
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
      for (const [value, series] of item.bars) {
        const bar = make("span", "lab-len");
        bar.dataset.series = series;
        bar.style.width = share(value, state.most);
        row.track.append(bar);
      }
      for (const [value, words] of item.dots ?? []) {
        const dot = make("span", "lab-len-dot");
        dot.style.left = share(value, state.most);
        dot.title = words;
        row.track.append(dot);
      }
      if (state.line) {
        const line = make("span", "lab-len-line");
        line.style.left = share(state.line[0], state.most);
        row.track.append(line);
      }
    }
    for (const cell of [...row.querySelectorAll("td.lab-bars-figure")]) cell.remove();
    for (const text of item.cells) row.append(make("td", "lab-bars-figure lab-number", text));
  }

  return follow(model, el, "lab-bar-table", (state) => {
    const rows = state.rows ?? [];
    table.hidden = rows.length === 0;
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
      cell.words.style.left = i === 1 && state.line ? share(state.line[0], state.most) : "";
      cell.words.style.transform = i === 1 && state.line ? `translateX(-${share(state.line[0], state.most)})` : "";
    });
    keyed(body, rows, (_row, i) => i, makeRow, (row, item) => drawRow(row, item, state));
  });
}

export default { render };
