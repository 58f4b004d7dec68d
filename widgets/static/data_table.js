// The table behind a picture. Its rows are drawn only while it is open.

const MOST = 2000;

function render({ model, el }) {
  const details = make("details", "lab-data");
  const summary = make("summary");
  const scroll = make("div", "lab-data-scroll");
  const table = make("table");
  const caption = make("caption", "lab-data-caption");
  const head = make("thead");
  const headRow = make("tr");
  const body = make("tbody");
  const note = make("p", "lab-data-note");
  head.append(headRow);
  table.append(caption, head, body);
  scroll.append(table);
  scroll.tabIndex = 0;
  setAttr(scroll, "role", "region");
  details.append(summary, scroll, note);
  el.replaceChildren(details);
  details.addEventListener("toggle", () => draw(model.get("state") ?? {}));

  const text = (value) => (value === null || value === undefined || value === "" ? "–" : typeof value === "number" ? value.toLocaleString("en-GB", { maximumFractionDigits: 6 }) : String(value));

  function draw(state) {
    const rows = state.rows ?? [];
    setText(summary, state.summary || "Table");
    setAttr(summary, "aria-label", state.caption ? `Table: ${state.caption}` : null);
    setText(caption, state.caption || "The figures of the picture");
    setAttr(scroll, "aria-label", state.caption || "The figures of the picture");
    const cut = rows.length > MOST ? `The first ${MOST.toLocaleString("en-GB")} of ${rows.length.toLocaleString("en-GB")} rows. ` : "";
    setText(note, cut + (state.note ?? ""));
    note.hidden = !(cut || state.note);
    if (!details.open) return;
    keyed(headRow, state.head ?? [], (_cell, i) => i, () => {
      const cell = make("th");
      cell.scope = "col";
      return cell;
    }, (cell, value, i) => {
      setText(cell, value);
      cell.classList.toggle("lab-number", typeof rows[0]?.[i] === "number");
    });
    keyed(body, rows.slice(0, MOST), (_row, i) => i, () => make("tr"), (node, row) => {
      const key = JSON.stringify(row);
      if (node.labKey === key) return;
      node.labKey = key;
      keyed(node, row, (_cell, i) => i, () => make("td"), (cell, value) => {
        setText(cell, text(value));
        cell.classList.toggle("lab-number", typeof value === "number");
      });
    });
  }
  return follow(model, el, "lab-data-table", draw);
}

export default { render };
