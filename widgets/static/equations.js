// Lines of matrices, each with a sign before it: {label, lines: [[title, [{sign, rows, name, mark}]]], picture}.

function render({ model, el }) {
  const box = make("div", "lab-equations-box");
  el.replaceChildren(box);
  const picture = (model.get("state") ?? {}).picture;
  if (picture) offerPicture(el, box, picture);

  function drawPart(node, part) {
    const key = JSON.stringify(part);
    if (node.labKey === key) return;
    node.labKey = key;
    node.className = "lab-equation-part";
    node.classList.toggle("lab-marked", Boolean(part.mark));
    const grid = make("span", "lab-equation-matrix");
    grid.style.setProperty("--columns", part.rows[0]?.length ?? 1);
    for (const row of part.rows) for (const cell of row) grid.append(make("span", "", cell));
    const named = make("span", "lab-equation-named");
    named.append(make("span", "lab-equation-name", part.name), grid);
    node.replaceChildren(...(part.sign ? [make("span", "lab-equation-sign", part.sign)] : []), named);
  }

  return follow(model, el, "lab-equations", (state) => {
    setAttr(box, "role", "group");
    setAttr(box, "aria-label", state.label || null);
    keyed(box, state.lines ?? [], (_line, i) => i, () => {
      const line = make("div", "lab-equation");
      line.name = make("p", "lab-equation-title");
      line.parts = make("div", "lab-equation-parts");
      line.append(line.name, line.parts);
      return line;
    }, (line, [title, parts]) => {
      setText(line.name, title);
      keyed(line.parts, parts, (_part, i) => i, () => make("div"), drawPart);
    });
  });
}

export default { render };
