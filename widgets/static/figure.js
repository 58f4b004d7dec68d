// The only home of numbers: value, unit, and where the number comes from.

const BADGES = {
  MEASURED: "Measured in this run on this machine.",
  DERIVED: "Computed from a formula or from measured figures.",
  SIMULATED: "Simulated: no memory or time was really saved.",
};

const SIGN = /^(%|×(?:\s10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?|[KMGT]iB|B|µs|ms|s|min|nats)(?:,?\s+|$)/;
const SIGNED = /^(.*?)\s*(%|×\s10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)$/;

/** Value, sign and unit: a percent sign, a power of ten or a unit of measure stays beside its value, smaller, wherever it was written. */
function partsOf(value, unit) {
  const own = SIGNED.exec(value);
  if (own) return [own[1], own[2], unit];
  const sign = SIGN.exec(unit);
  return sign ? [value, sign[1], unit.slice(sign[0].length)] : [value, "", unit];
}

function render({ model, el }) {
  const row = make("dl", "lab-figures-row");
  el.replaceChildren(row);
  const create = () => {
    const node = make("div", "lab-figure");
    const head = make("dt", "lab-figure-head"); // a unit that does not fit beside its value goes below it as a whole
    node.about = make("dd", "lab-figure-about");
    node.value = make("span", "lab-figure-value");
    node.number = make("span");
    node.sign = make("small");
    node.value.append(node.number, node.sign);
    node.unit = make("span", "lab-figure-unit");
    node.badge = make("span", "lab-badge");
    node.note = make("span", "lab-figure-note");
    head.append(node.value, node.unit);
    node.about.append(node.badge, node.note);
    node.append(head, node.about);
    return node;
  };
  return follow(model, el, "lab-figures", (state) => {
    const figures = state.figures ?? [];
    row.style.setProperty("--columns", Math.min(figures.length || 1, state.columns ?? 3));
    keyed(row, figures, (figure, i) => figure.id ?? i, create, (node, figure) => {
      const nothing = ["", "–", null, undefined].includes(figure.value);
      const [number, sign, unit] = nothing ? ["–", "", figure.unit ?? ""] : partsOf(String(figure.value), figure.unit ?? "");
      setText(node.number, number);
      setText(node.sign, sign && `\u00a0${sign}`);
      node.value.classList.toggle("lab-nothing", nothing);
      setText(node.unit, unit);
      const badge = figure.badge in BADGES ? figure.badge : "";
      node.badge.classList.toggle("lab-no-badge", !badge); // its place stays, so that nothing moves when the value comes
      setText(node.badge, badge);
      node.badge.dataset.badge = badge;
      node.badge.title = BADGES[badge] ?? "";
      setText(node.note, figure.note);
      node.title = figure.title ?? "";
    });
  });
}

export default { render };
