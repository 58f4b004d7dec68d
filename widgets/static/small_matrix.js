// A small matrix in brackets: {label, rows: [[[text, kept, words]]], picture}; kept is true, false or null.

function render({ model, el }) {
  const table = make("table", "lab-matrix");
  const body = make("tbody");
  table.append(body);
  el.replaceChildren(table);
  const picture = (model.get("state") ?? {}).picture;
  if (picture) {
    el.classList.add("lab-has-picture");
    el.dataset.picture = picture;
    el.labPicture = (format, ground) => pictureOf(domPicture(table), format, ground);
  }
  return follow(model, el, "lab-small-matrix", (state) => {
    setAttr(table, "aria-label", state.label);
    keyed(body, state.rows ?? [], (_row, i) => i, () => make("tr"), (row, cells) => {
      keyed(row, cells, (_cell, i) => i, () => {
        const cell = make("td");
        cell.mark = make("i");
        cell.words = make("span");
        cell.append(cell.mark, cell.words);
        return cell;
      }, (cell, [text, kept, words]) => {
        setText(cell.mark, kept === null ? "" : kept ? "✓" : "×");
        setText(cell.words, text);
        setAttr(cell, "data-kept", kept === null ? null : String(kept));
        cell.title = kept === null ? words : `${words}, ${kept ? "kept" : "pruned"}`;
      });
    });
  });
}

export default { render };
