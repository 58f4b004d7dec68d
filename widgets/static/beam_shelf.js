// Finished texts, best first, each with its score's formula. Hover and click are linked to the tree.

function render({ model, el }) {
  const list = make("ol", "lab-shelf-list");
  setAttr(list, "aria-label", "Finished texts, best first");
  const empty = make("p", "lab-shelf-empty");
  const gone = make("p", "lab-shelf-out");
  setText(gone, "Pushed out by better ones");
  const out = make("ol", "lab-shelf-list lab-shelf-pushed");
  setAttr(out, "aria-label", "Texts pushed out by better ones");
  el.replaceChildren(list, empty, gone, out);
  let hovered = null;

  function hover(node) {
    if (node === hovered) return;
    hovered = node;
    post(model, { type: "hover", node });
  }
  const nodeOf = (target) => {
    const row = target.closest?.("[data-node]");
    return row ? Number(row.dataset.node) : null;
  };
  for (const part of [list, out]) {
    part.addEventListener("pointerover", (event) => hover(nodeOf(event.target)));
    part.addEventListener("pointerleave", () => hover(null));
    part.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && hover(nodeOf(event.target)));
    part.addEventListener("focusout", (event) => part.contains(event.relatedTarget) || hover(null));
    rove(part, () => [...part.querySelectorAll("button")]);
  }

  function makeRow(row) {
    const item = make("li", "lab-shelf-item");
    if (row.bound) {
      item.classList.add("lab-shelf-bound");
      item.words = make("span");
      item.append(item.words);
      return item;
    }
    item.button = makeButton("lab-shelf-row", "", () => {
      const { locked } = model.get("state") ?? {};
      post(model, { type: "lock", node: row.node === locked ? null : row.node });
    });
    item.button.tabIndex = -1;
    for (const name of ["place", "text", "formula"]) {
      item[name] = make(name === "text" ? "bdi" : "span", `lab-shelf-${name}`);
      item.button.append(item[name]);
    }
    item.append(item.button);
    return item;
  }

  function paintRow(item, row, at, state) {
    if (row.bound) return setText(item.words, row.bound);
    const won = state.over && at === 0 && !row.pushed;
    item.button.dataset.node = row.node;
    const place = row.pushed ? "out" : String(at + 1);
    setText(item.place, won ? "✓ 1" : place);
    item.classList.toggle("lab-shelf-won", won);
    setText(item.text, row.text);
    setText(item.formula, row.formula);
    const how = row.is_end ? "ended with an end token" : "cut at the length limit";
    item.dataset.end = row.is_end ? "end" : "limit";
    item.button.title = `${row.full ?? row.text}\n${how}`;
    setAttr(item.button, "aria-label", `${row.pushed ? "pushed out" : at + 1}${won ? ", wins" : ""}: ${row.text}; score ${row.formula}; ${how}`);
    setAttr(item.button, "aria-pressed", row.node === state.locked ? "true" : "false");
    item.button.classList.toggle("lab-shelf-pointed", row.node === state.pointed);
  }

  return follow(model, el, "lab-beam-shelf", (state) => {
    const rows = state.rows ?? [];
    empty.hidden = rows.length > 0;
    setText(empty, state.empty || "Nothing has finished yet.");
    const shown = rows.map((row, at) => ({ ...row, at }));
    if (state.bound) shown.splice(Math.min(state.bound.above, shown.length), 0, { bound: state.bound.text });
    keyed(list, shown, (row) => (row.bound ? "bound" : row.node), makeRow, (item, row) => paintRow(item, row, row.at, state));
    const pushed = (state.pushed ?? []).map((row, at) => ({ ...row, at, pushed: true }));
    gone.hidden = out.hidden = pushed.length === 0;
    keyed(out, pushed, (row) => row.node, makeRow, (item, row) => paintRow(item, row, row.at, state));
    for (const part of [list, out]) {
      const buttons = [...part.querySelectorAll("button")];
      if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
    }
  });
}

export default { render };
