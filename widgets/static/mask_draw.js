// Drawing of masks from packed bits: density when a pixel holds several weights, squares when a weight holds pixels.

const STRIP = 18; // pixels of the strip beside a matrix
const GAP = 6; // and between them
const BY_FIRST = 1, BY_SECOND = 2; // of a cell's code: kept by the first mask, kept by the second

/** Bytes of a base64 text. */
function bytesOf(text) {
  const raw = atob(text ?? "");
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
  return out;
}

/** A mask that answers for one weight; null where the bits do not fit the shape. */
function maskOf(text, rows, columns) {
  const bits = bytesOf(text);
  const stride = Math.ceil(columns / 8);
  if (bits.length !== rows * stride) return null;
  return { kept: (row, column) => (bits[row * stride + (column >> 3)] >> (column & 7)) & 1 };
}

/** A CSS colour as [r, g, b]. */
function rgbOf(text) {
  rgbOf.probe ??= document.createElement("canvas").getContext("2d");
  const { probe } = rgbOf;
  probe.fillStyle = "#888888";
  probe.fillStyle = text.trim();
  const hex = probe.fillStyle;
  if (!hex.startsWith("#")) return [136, 136, 136];
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/** The colours of the page, as numbers; `own` names the variable of each mask's colour. */
function paletteOf(el, own = {}) {
  const style = getComputedStyle(el);
  const get = (name) => rgbOf(style.getPropertyValue(`--lab-${name}`));
  const masks = Object.fromEntries(Object.entries(own).map(([id, name]) => [id, rgbOf(style.getPropertyValue(name))]));
  return { masks, both: get("both"), above: get("series-1"), below: get("series-2"), ground: get("surface"), sunken: get("sunken"), line: get("line"), text: get("text"), muted: get("muted"), bad: get("rejected-edge"), accent: get("accent") };
}

const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;
const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));

/** The colour of each code: of one mask kept and pruned, of two the four cases. */
function coloursOf(panel, palette) {
  const gone = palette.sunken;
  const { first, second } = panel.info;
  if (!panel.second) return [gone, palette.masks[first] ?? palette.above];
  return [gone, palette.masks[first] ?? palette.above, palette.masks[second] ?? palette.below, palette.both];
}

/** What stands at a weight: 0 gone, 1 kept (by the first), 2 by the second alone, 3 by both. */
function codeAt(panel, row, column) {
  const first = panel.first.kept(row, column);
  return panel.second ? first * BY_FIRST + panel.second.kept(row, column) * BY_SECOND : first;
}

/** All of the matrix, less than a pixel a weight: each pixel has the mean colour of its weights. */
function drawDensity(context, panel, view, colours) {
  const { rows, columns } = panel;
  const wide = Math.max(1, Math.round(columns * view.scale));
  const tall = Math.max(1, Math.round(rows * view.scale));
  const sums = new Float32Array(wide * tall * 4);
  const across = Int32Array.from({ length: columns }, (_, c) => Math.min(wide - 1, Math.floor(((c + 0.5) * wide) / columns)));
  for (let row = 0; row < rows; row += 1) {
    const base = Math.min(tall - 1, Math.floor(((row + 0.5) * tall) / rows)) * wide;
    for (let column = 0; column < columns; column += 1) {
      const at = (base + across[column]) * 4;
      const colour = colours[codeAt(panel, row, column)];
      sums[at] += colour[0];
      sums[at + 1] += colour[1];
      sums[at + 2] += colour[2];
      sums[at + 3] += 1;
    }
  }
  const image = context.createImageData(wide, tall);
  for (let at = 0; at < sums.length; at += 4) {
    const count = sums[at + 3] || 1;
    for (let k = 0; k < 3; k += 1) image.data[at + k] = sums[at + k] / count;
    image.data[at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** Weights of the window, one colour each; `shade` gives a kept weight's own colour or null. */
function drawCells(context, panel, view, span, colours, shade) {
  const wide = span.right - span.left;
  const tall = span.bottom - span.top;
  const image = new ImageData(Math.max(1, wide), Math.max(1, tall));
  for (let y = 0; y < tall; y += 1) {
    for (let x = 0; x < wide; x += 1) {
      const code = codeAt(panel, span.top + y, span.left + x);
      const colour = (code && shade?.(span.top + y, span.left + x)) || colours[code];
      image.data.set([colour[0], colour[1], colour[2], 255], (y * wide + x) * 4);
    }
  }
  const small = document.createElement("canvas");
  small.width = image.width;
  small.height = image.height;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, (span.left - view.x) * view.scale, (span.top - view.y) * view.scale, wide * view.scale, tall * view.scale);
}

/** Signs in large cells, so that colours are not needed: a cross where pruned, a slant where only one keeps. */
function drawSigns(context, panel, view, span, palette) {
  const size = view.scale;
  context.lineWidth = Math.max(1, size / 14);
  for (let row = span.top; row < span.bottom; row += 1) {
    for (let column = span.left; column < span.right; column += 1) {
      const code = codeAt(panel, row, column);
      if (code === 3 || (code === BY_FIRST && !panel.second)) continue;
      const [x, y, edge] = [(column - view.x) * size, (row - view.y) * size, size * 0.32];
      context.strokeStyle = css(code ? palette.ground : palette.muted, code ? 0.95 : 0.6);
      context.beginPath();
      if (code !== BY_SECOND) { context.moveTo(x + edge, y + size - edge); context.lineTo(x + size - edge, y + edge); }
      if (code !== BY_FIRST) { context.moveTo(x + edge, y + edge); context.lineTo(x + size - edge, y + size - edge); }
      context.stroke();
    }
  }
}

/** Hairlines between large cells. */
function drawGrid(context, view, span, palette) {
  context.strokeStyle = css(palette.ground, 0.8);
  context.lineWidth = 1;
  context.beginPath();
  for (let c = span.left; c <= span.right; c += 1) {
    const x = Math.round((c - view.x) * view.scale) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, (span.bottom - view.y) * view.scale);
  }
  for (let r = span.top; r <= span.bottom; r += 1) {
    const y = Math.round((r - view.y) * view.scale) + 0.5;
    context.moveTo(0, y);
    context.lineTo((span.right - view.x) * view.scale, y);
  }
  context.stroke();
}

/** Frames around groups [row, column, rows, columns], large enough to be seen from afar. */
function drawGroups(context, groups, view, palette, dpr) {
  for (const [row, column, rows, columns] of groups) {
    const [wide, tall] = [Math.max(columns * view.scale, 5 * dpr), Math.max(rows * view.scale, 5 * dpr)];
    const x = (column + columns / 2 - view.x) * view.scale - wide / 2;
    const y = (row + rows / 2 - view.y) * view.scale - tall / 2;
    for (const [colour, width] of [[palette.ground, 4], [palette.bad, 2]]) {
      context.strokeStyle = css(colour);
      context.lineWidth = width * dpr;
      context.strokeRect(x, y, wide, tall);
    }
  }
}

/** Beside the matrix: the share of each row that is gone (of two masks: that differs), from the left. */
function drawStrip(context, panel, view, span, left, wide, height, palette) {
  const size = Math.max(1, view.scale);
  const shares = panel.strip;
  context.fillStyle = css(palette.sunken);
  context.fillRect(left, 0, wide, Math.min(height, (span.bottom - view.y) * view.scale));
  context.fillStyle = css(palette.muted, 0.75);
  if (view.scale >= 1) {
    for (let row = span.top; row < span.bottom; row += 1) context.fillRect(left, (row - view.y) * size, wide * shares[row], Math.max(1, size - (size > 4 ? 1 : 0)));
    return;
  }
  const tall = Math.round(panel.rows * view.scale);
  for (let y = 0; y < tall; y += 1) {
    const [from, to] = [Math.floor((y * panel.rows) / tall), Math.max(Math.floor(((y + 1) * panel.rows) / tall), Math.floor((y * panel.rows) / tall) + 1)];
    let sum = 0;
    for (let row = from; row < to; row += 1) sum += shares[row];
    context.fillRect(left, y, (wide * sum) / (to - from), 1);
  }
}

/** The share of each row: gone, or different where there are two masks. */
function stripOf(panel) {
  const out = new Float32Array(panel.rows);
  for (let row = 0; row < panel.rows; row += 1) {
    let count = 0;
    for (let column = 0; column < panel.columns; column += 1) {
      const code = codeAt(panel, row, column);
      count += panel.second ? Number(code === 1 || code === 2) : 1 - code;
    }
    out[row] = count / panel.columns;
  }
  return out;
}

/** One panel: the matrix, what is marked in it, and the strip beside it. */
function drawPanel(context, panel, { state, view, span, room, palette, shade, cursor }) {
  const { dpr, wide, tall } = room;
  const colours = coloursOf(panel, palette);
  context.clearRect(0, 0, context.canvas.width, tall);
  context.save();
  context.beginPath();
  context.rect(0, 0, wide, tall);
  context.clip();
  if (view.scale < 1) drawDensity(context, panel, view, colours);
  else drawCells(context, panel, view, span, colours, state.colour === "value" && !panel.second ? shade : null);
  if (view.scale >= 8) drawGrid(context, view, span, palette);
  if (view.scale >= 10) drawSigns(context, panel, view, span, palette);
  if (panel.marked) drawGroups(context, state.groups ?? [], view, palette, dpr);
  if (cursor) {
    const size = Math.max(view.scale, 7 * dpr);
    context.strokeStyle = css(palette.text);
    context.lineWidth = 2 * dpr;
    context.strokeRect((cursor.column + 0.5 - view.x) * view.scale - size / 2, (cursor.row + 0.5 - view.y) * view.scale - size / 2, size, size);
  }
  context.restore();
  const content = Math.min(wide, Math.round((span.right - view.x) * view.scale));
  drawStrip(context, panel, view, span, content + Math.round(GAP * dpr), Math.round(STRIP * dpr), tall, palette);
}

/** What there is to say of one weight: `kept` holds [name of a mask, 1 or 0]. */
function saidOf({ row, column }, kept, value, groups) {
  const parts = [`Row ${row}, column ${column}: ${kept.map(([name, is]) => `${is ? "kept" : "pruned"} by ${name}`).join("; ")}`];
  if (value !== null) parts.push(`w ≈ ${value.toPrecision(2).replace("-", "−")}`);
  const group = groups.find(([r, c, rows, columns]) => row >= r && row < r + rows && column >= c && column < c + columns);
  if (group) parts.push(`its group has ${group[4]} kept: too many`);
  return `${parts.join(" · ")}.`;
}

/** The panels as they stand, side by side below their titles, as an SVG that holds bitmaps. */
function maskPicture(shown) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  let x = 8;
  let tall = 0;
  for (const { canvas, info } of shown) {
    const [wide, high] = [parseFloat(canvas.style.width), parseFloat(canvas.style.height)];
    const title = document.createElementNS(space, "text");
    const image = document.createElementNS(space, "image");
    const style = getComputedStyle(canvas);
    for (const [name, value] of Object.entries({ x, y: 16, "font-size": "12px", "font-family": style.fontFamily, fill: style.color })) title.setAttribute(name, value);
    title.textContent = info.title;
    for (const [name, value] of Object.entries({ x, y: 24, width: wide, height: high, href: canvas.toDataURL("image/png") })) image.setAttribute(name, value);
    svg.append(title, image);
    x += wide + 12;
    tall = Math.max(tall, high);
  }
  svg.setAttribute("viewBox", `0 0 ${Math.ceil(x)} ${Math.ceil(tall + 32)}`);
  for (const node of svg.querySelectorAll("text")) node.style.cssText = `fill:${node.getAttribute("fill")}`;
  document.body.append(svg); // its styles are read where it stands
  svg.style.cssText = "position:absolute;left:-99999px;width:1px;height:1px";
  queueMicrotask(() => svg.remove());
  return svg;
}
