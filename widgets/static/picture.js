// An SVG drawn with the page's style sheet as a file that stands alone: PNG or SVG.

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "font-family", "font-size", "font-weight", "text-anchor", "white-space"];
const MOST_PIXELS = 8000;

/** A copy of `svg` with its styles written into it, on a ground of its own. */
function standAlone(svg, ground) {
  const copy = svg.cloneNode(true);
  const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  const hidden = [];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    if (style.display === "none") hidden.push(to[i]);
    for (const name of [...to[i].attributes].map((attribute) => attribute.name)) {
      if (/^(data-|aria-|role$|id$|class$)/.test(name)) to[i].removeAttribute(name);
    }
    if (["path", "rect", "text", "circle", "line"].includes(node.localName)) {
      to[i].setAttribute("style", KEPT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    }
  });
  for (const node of hidden) node.remove();
  const back = copy.ownerDocument.createElementNS(svg.namespaceURI, "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: ground })) back.setAttribute(name, value);
  copy.prepend(back);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

/** The same as a file of this format ("png" or "svg"), at life size or less where it would be too large. */
async function pictureOf(svg, format, ground) {
  const { width, height } = svg.viewBox.baseVal;
  const blob = standAlone(svg, ground);
  if (format === "svg") return blob;
  const address = URL.createObjectURL(blob);
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const scale = Math.min(2, MOST_PIXELS / width, MOST_PIXELS / height);
    const canvas = make("canvas");
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
