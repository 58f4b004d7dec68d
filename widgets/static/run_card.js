// The run card: everything that decides a run's result, to read and to copy.

function render({ model, el }) {
  const open = makeButton("lab-small", "Run card", () => {
    dialog.showModal();
    close.focus();
  });
  setAttr(open, "aria-haspopup", "dialog");
  const dialog = make("dialog", "lab-card");
  const title = make("h2", "lab-card-title", "Run card");
  title.id = makeId();
  setAttr(dialog, "aria-labelledby", title.id);
  const about = make("p", "lab-card-about", "The same card gives the same tokens again.");
  const scroll = make("div", "lab-card-scroll");
  const table = make("table");
  setAttr(table, "aria-labelledby", title.id);
  const body = make("tbody");
  table.append(body);
  scroll.append(table);
  const foot = make("div", "lab-card-foot");
  const said = make("span", "lab-card-said");
  setAttr(said, "role", "status");
  const copy = async (text) => setText(said, (await copyText(text)) ? "copied" : "The browser did not allow it.");
  const json = makeButton("lab-small", "Copy as JSON", () => copy(JSON.stringify((model.get("state") ?? {}).card ?? {}, null, 2)));
  const python = makeButton("lab-small", "Copy as Python", () => copy((model.get("state") ?? {}).python ?? ""));
  python.title = "Code that makes this run again, in a notebook or a script.";
  const close = makeButton("lab-small", "Close", () => dialog.close());
  foot.append(said, python, json, close);
  dialog.append(title, about, scroll, foot);
  dialog.addEventListener("close", () => {
    setText(said, "");
    open.focus();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the ground behind it
  });
  el.replaceChildren(open, dialog);
  const stop = follow(model, el, "lab-run-card", (state) => {
    const rows = state.rows ?? [];
    open.disabled = rows.length === 0;
    python.hidden = !state.python;
    open.title = rows.length ? "" : "There is no run yet.";
    setText(title, state.title || "Run card");
    keyed(body, rows, (_row, i) => i, () => {
      const row = make("tr");
      const head = make("th");
      head.scope = "row";
      row.append(head, make("td"));
      return row;
    }, (node, [name, value]) => {
      setText(node.firstChild, name);
      setText(node.lastChild, value);
    });
  });
  return () => {
    stop();
    if (dialog.open) dialog.close();
  };
}

export default { render };
