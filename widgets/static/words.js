// Fixed words as a pure function of {lines: [[tag, text]], css_class, legend: [[text, variable, dashed]], rich, to_lesson}.
const TAGS = new Set(["h1", "h2", "p", "nav"]);
const SVG = "http://www.w3.org/2000/svg";

function legendItem([text, variable, dashed]) {
  const item = document.createElement("li");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 18 8");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "line");
  for (const [key, value] of Object.entries({ x1: 0, x2: 18, y1: 4, y2: 4, "stroke-width": 2.5 })) line.setAttribute(key, value);
  line.style.stroke = `var(${variable})`;
  if (dashed) line.setAttribute("stroke-dasharray", "5 3");
  svg.append(line);
  const words = document.createElement("span");
  words.textContent = text;
  item.append(svg, words);
  return item;
}

/** A link to the lesson of this page, which opens it too; its place in the address belongs to the page's state. */
function lessonLink(el, text) {
  const link = make("a", "lab-to-lesson", `${text}\u00a0↓`);
  link.href = "#lesson";
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const panel = el.closest(".lab-page")?.querySelector(".lab-lesson-panel");
    panel?.querySelector(".lab-lesson-fold[aria-expanded=false]")?.click();
    panel?.scrollIntoView({ block: "start" });
    panel?.focus({ preventScroll: true });
  });
  return link;
}

function render({ model, el }) {
  return follow(model, el, "lab-words", ({ lines, css_class, legend, rich, to_lesson }) => {
    if (css_class) el.classList.add(css_class);
    const nodes = lines.map(([tag, text]) => {
      const node = make(TAGS.has(tag) ? tag : "p");
      (rich ? setRich : setText)(node, text);
      return node;
    });
    if (to_lesson) nodes.at(-1)?.append(" ", lessonLink(el, to_lesson));
    if (legend.length) {
      const list = make("ul", "lab-legend");
      list.append(...legend.map(legendItem));
      nodes.push(list);
    }
    el.replaceChildren(...nodes);
  });
}

export default { render };
