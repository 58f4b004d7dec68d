// The index page in a notebook, built node by node from the packaged one (see widgets/front/tree.py).
const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set((
  "a b button code details div form h1 h2 h3 input li ol p s section small span summary ul " +
  "svg circle g line path polygon polyline rect text tspan"
).split(" "));

/** A node from a text or `[tag, attributes, children]`; what the index has no use for is left out. */
function build(node, inSvg) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, attributes, children] = node;
  if (!TAGS.has(tag)) return document.createTextNode("");
  const svg = inSvg || tag === "svg";
  const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (!name.startsWith("on")) made.setAttribute(name, value);
  made.append(...children.map((child) => build(child, svg)));
  return made;
}

function render({ model, el }) {
  setAttr(el, "lang", (model.get("state") ?? {}).lang || "en");
  el.replaceChildren(...((model.get("state") ?? {}).nodes ?? []).map((node) => build(node, false)));
  return attachFront(el);
}

export default { render };
