// A picture made of ordinary elements (boxes and words) as an SVG, so that it can be saved like a drawn one.

const SPACE = "http://www.w3.org/2000/svg";

/** An SVG of what stands in `root` now: a rectangle for each box that shows, a text for each word. */
function domPicture(root) {
  const frame = root.getBoundingClientRect();
  const svg = document.createElementNS(SPACE, "svg");
  const [width, height] = [Math.ceil(frame.width) + 16, Math.ceil(frame.height) + 16];
  const put = (name, attributes, text = "") => {
    const node = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    svg.append(node);
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const clear = (colour) => colour === "transparent" || /^rgba\(.*,\s*0\)$|\/\s*0\)$/.test(colour);
  /** How far to the right what stands in `node` is seen. */
  const seen = (node) => {
    for (let up = node; up && up !== root; up = up.parentElement) if (getComputedStyle(up).overflowX === "hidden") return up.getBoundingClientRect().right;
    return Infinity;
  };
  const shows = (node) => node.checkVisibility() && !node.closest(".lab-hidden");
  const at = (box) => ({ x: (box.left - frame.left + 8).toFixed(1), y: (box.top - frame.top + 8).toFixed(1) });
  for (const node of root.querySelectorAll("*")) {
    const style = getComputedStyle(node);
    const edge = ["Top", "Left", "Bottom"].map((side) => (clear(style[`border${side}Color`]) ? 0 : parseFloat(style[`border${side}Width`])));
    const { left, top, height: tall, right } = node.getBoundingClientRect();
    const box = { left, top, height: tall, width: Math.max(0, Math.min(right, seen(node.parentElement)) - left) };
    if (!shows(node) || (clear(style.backgroundColor) && Math.max(...edge) === 0) || box.height === 0) continue;
    const whole = edge.every((side) => side > 0);
    if (!clear(style.backgroundColor) || whole) {
      const dash = style.borderLeftStyle === "dashed" ? { "stroke-dasharray": "3 2" } : {};
      put("rect", {
        ...at(box), width: box.width.toFixed(1), height: box.height.toFixed(1), rx: Math.min(parseFloat(style.borderRadius) || 0, box.height / 2),
        fill: clear(style.backgroundColor) ? "none" : style.backgroundColor, ...(whole ? { stroke: style.borderLeftColor, ...dash } : {}),
      });
    } else if (edge[1] > 0) put("rect", { ...at(box), width: edge[1], height: box.height.toFixed(1), fill: style.borderLeftColor });
  }
  /** A word as it is broken over lines, without what lies beyond `end`. */
  function lines(node, start, word, end) {
    const found = [];
    for (const char of word) {
      range.setStart(node, start);
      range.setEnd(node, start + char.length);
      start += char.length;
      const box = range.getBoundingClientRect();
      if (box.right > end + 1) continue;
      const last = found.at(-1);
      if (last && Math.abs(last.box.top - box.top) < 3) last.text += char;
      else found.push({ text: char, box });
    }
    return found.filter((line) => line.box.height > 0);
  }
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!shows(node.parentElement)) continue;
    const style = getComputedStyle(node.parentElement);
    const end = seen(node.parentElement);
    for (const word of node.data.matchAll(/\S+/g)) {
      for (const { text, box } of lines(node, word.index, word[0], end)) {
        put("text", {
          x: at(box).x, y: (box.top - frame.top + 8 + box.height / 2).toFixed(1), "dominant-baseline": "central", fill: style.color, "font-family": style.fontFamily,
          "font-size": style.fontSize, "font-weight": style.fontWeight, ...(style.textDecorationLine === "line-through" ? { "text-decoration": "line-through" } : {}),
        }, text);
      }
    }
  }
  return svg;
}

/** Let the page's export save what stands in `root` under this name. */
function offerPicture(el, root, name) {
  el.classList.add("lab-has-picture");
  el.dataset.picture = name;
  el.labPicture = (format, ground) => pictureOf(domPicture(root), format, ground);
}
