// The only home of numbers: value, unit, and where the number comes from.

const BADGES = {
  MEASURED: "Measured in this run on this machine.",
  DERIVED: "Computed from a formula or from measured figures.",
  SIMULATED: "Simulated: no memory or time was really saved.",
};

function render({ model, el }) {
  const row = make("dl", "lab-figures-row");
  el.replaceChildren(row);
  const create = () => {
    const node = make("div", "lab-figure");
    node.unit = make("dt", "lab-figure-unit");
    node.about = make("dd", "lab-figure-about");
    node.value = make("dd", "lab-figure-value");
    node.badge = make("span", "lab-badge");
    node.note = make("span", "lab-figure-note");
    node.about.append(node.badge, node.note);
    node.append(node.unit, node.value, node.about);
    return node;
  };
  return follow(model, el, "lab-figures", (state) => {
    const figures = state.figures ?? [];
    row.style.setProperty("--columns", Math.min(figures.length || 1, state.columns ?? 3));
    keyed(row, figures, (figure, i) => figure.id ?? i, create, (node, figure) => {
      const nothing = ["", "–", null, undefined].includes(figure.value);
      setText(node.value, nothing ? "–" : figure.value);
      node.value.classList.toggle("lab-nothing", nothing);
      setText(node.unit, figure.unit);
      const badge = figure.badge in BADGES ? figure.badge : "";
      node.badge.hidden = !badge;
      setText(node.badge, badge);
      node.badge.dataset.badge = badge;
      node.badge.title = BADGES[badge] ?? "";
      setText(node.note, figure.note);
      node.title = figure.title ?? "";
    });
  });
}

export default { render };
