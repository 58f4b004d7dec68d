// Masks as zoomable bitmaps: {label, rows, columns, names, colours, panels: [{id, title, first, second}], groups, values, colour,
// at, empty, picture}; the packed bits of each mask, in base64, are a trait of their own: {id: text}. See mask_view.py.

const STEPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];
const TALL = 420;

function render({ model, el }) {
  const box = make("div", "lab-mask");
  setAttr(box, "role", "group");
  box.tabIndex = 0;
  const bar = make("div", "lab-mask-bar");
  const nearer = makeButton("lab-small", "+", () => zoom(1));
  const farther = makeButton("lab-small", "−", () => zoom(-1));
  const whole = makeButton("lab-small", "Whole matrix", () => fit());
  setAttr(nearer, "aria-label", "Zoom in");
  setAttr(farther, "aria-label", "Zoom out");
  const where = make("span", "lab-mask-where");
  bar.append(farther, nearer, whole, where);
  const panels = make("div", "lab-mask-panels");
  const readout = make("p", "lab-mask-readout");
  setAttr(readout, "aria-live", "polite");
  const empty = make("p", "lab-mask-empty");
  box.append(bar, panels, readout);
  el.replaceChildren(box, empty);

  let shown = []; // panels with their masks and canvases
  let state = {};
  let palette = paletteOf(el);
  let view = null; // {scale: device pixels a weight, x, y: the weight at the top left}
  let cursor = null; // {row, column}
  let values = null;
  let given = "";
  let room = { wide: 0, tall: 0, dpr: 1, fit: 1 };
  let timer = 0;
  let frame = 0;
  const masks = new Map(); // id -> {text, mask}
  const strips = new Map();

  function maskFor(id) {
    const text = (model.get("bits") ?? {})[id] ?? "";
    const old = masks.get(id);
    const key = `${state.rows}x${state.columns}`;
    if (old?.text === text && old.key === key) return old.mask;
    const mask = text ? maskOf(text, state.rows, state.columns) : null;
    masks.set(id, { text, key, mask });
    return mask;
  }

  function stripFor(panel, info) {
    const old = strips.get(info.id);
    if (old && old.first === panel.first && old.second === panel.second) return old.strip;
    const strip = stripOf(panel);
    strips.set(info.id, { first: panel.first, second: panel.second, strip });
    return strip;
  }

  function measure() {
    const wide = Math.floor(panels.querySelector("figure")?.getBoundingClientRect().width ?? 0);
    if (wide <= STRIP + GAP) return false;
    const dpr = window.devicePixelRatio || 1;
    const across = Math.floor((wide - STRIP - GAP) * dpr);
    let scale = Math.min(across / state.columns, (TALL * dpr) / state.rows);
    if (scale >= 1) scale = Math.floor(scale);
    const tall = Math.round(Math.max(state.rows * scale, Math.min(120 * dpr, across)));
    if (room.wide !== across || room.tall !== tall || room.fit !== scale || room.dpr !== dpr) {
      const whole = !view || view.scale <= room.fit;
      room = { wide: across, tall, dpr, fit: scale };
      if (whole) view = { scale, x: 0, y: 0 };
    }
    return true;
  }

  const levels = () => [room.fit, ...STEPS.filter((step) => step > room.fit * 1.01)];
  const clampView = () => {
    const limit = (at, size, seen) => Math.max(0, Math.min(at, size - seen));
    view.x = limit(view.x, state.columns, room.wide / view.scale);
    view.y = limit(view.y, state.rows, room.tall / view.scale);
    if (view.scale >= 1) [view.x, view.y] = [Math.floor(view.x), Math.floor(view.y)];
  };
  const spanOf = () => ({
    left: Math.floor(view.x), top: Math.floor(view.y),
    right: Math.min(state.columns, Math.ceil(view.x + room.wide / view.scale)),
    bottom: Math.min(state.rows, Math.ceil(view.y + room.tall / view.scale)),
  });

  function fit() {
    view = { scale: room.fit, x: 0, y: 0 };
    moved();
  }

  /** One level nearer or farther; the weight at `point` (else the cursor's, else the middle) stays where it is. */
  function zoom(step, point = null) {
    if (!view || !shown.length) return;
    const all = levels();
    const at = all.reduce((best, level, i) => (Math.abs(level - view.scale) < Math.abs(all[best] - view.scale) ? i : best), 0);
    const scale = all[Math.max(0, Math.min(all.length - 1, at + step))];
    const middle = [Math.min(room.wide, state.columns * view.scale) / 2, Math.min(room.tall, state.rows * view.scale) / 2];
    const keep = cursor && inView(cursor) ? [(cursor.column + 0.5 - view.x) * view.scale, (cursor.row + 0.5 - view.y) * view.scale] : middle;
    const [px, py] = point ?? keep;
    const [column, row] = [view.x + px / view.scale, view.y + py / view.scale];
    view = { scale, x: column - px / scale, y: row - py / scale };
    moved();
  }

  const inView = ({ row, column }) => {
    const span = spanOf();
    return row >= span.top && row < span.bottom && column >= span.left && column < span.right;
  };

  function moved() {
    clampView();
    paint();
    clearTimeout(timer);
    timer = setTimeout(tell, 150);
  }

  /** Say which part is on screen: the values of a small one can be asked, and the link holds it. */
  function tell() {
    if (!view || !shown.length) return;
    const span = spanOf();
    const whole = view.scale <= room.fit;
    post(model, { type: "window", row: span.top, column: span.left, rows: span.bottom - span.top, columns: span.right - span.left, whole, scale: view.scale / room.dpr });
  }

  function valueAt(row, column) {
    if (!values) return null;
    const [y, x] = [row - values.row, column - values.column];
    if (y < 0 || x < 0 || y >= values.rows || x >= values.columns) return null;
    return ((values.bytes[y * values.columns + x] << 24) >> 24) / 127 * values.scale;
  }

  function shade(row, column) {
    const value = valueAt(row, column);
    if (value === null) return null;
    const share = values.scale > 0 ? Math.abs(value) / values.scale : 0;
    return mix(palette.ground, value < 0 ? palette.below : palette.above, 0.12 + 0.88 * Math.sqrt(share));
  }

  function paint() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paintNow);
  }

  function paintNow() {
    if (!shown.length || !measure()) return;
    palette = paletteOf(el, state.colours); // now: the page's styles may have come after the state
    clampView();
    const span = spanOf();
    const { dpr } = room;
    for (const panel of shown) {
      const { canvas } = panel;
      const [wide, tall] = [room.wide + Math.round((STRIP + GAP) * dpr), room.tall];
      if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
      canvas.style.width = `${wide / dpr}px`;
      canvas.style.height = `${tall / dpr}px`;
      drawPanel(canvas.getContext("2d"), panel, { state, view, span, room, palette, shade, cursor: cursor && inView(cursor) ? cursor : null });
    }
    const scale = view.scale / dpr;
    setText(where, `rows ${span.top}–${span.bottom - 1}, columns ${span.left}–${span.right - 1} · ${scale < 1 ? `${(1 / scale).toFixed(1)} weights a pixel` : `${Number(scale.toFixed(1))} px a weight`}`);
    nearer.disabled = view.scale >= STEPS[STEPS.length - 1];
    farther.disabled = whole.disabled = view.scale <= room.fit;
    el.dataset.painted = String(Number(el.dataset.painted ?? 0) + 1);
  }

  function say() {
    if (!cursor || !shown.length) {
      setText(readout, shown.length ? "Point at a weight. Arrow keys move, + and − zoom, 0 shows all; after a click the wheel zooms too." : "");
      return;
    }
    const ids = [...new Set(shown.flatMap((panel) => [panel.info.first, panel.info.second].filter(Boolean)))];
    const kept = ids.map((id) => [state.names?.[id] ?? id, masks.get(id)?.mask?.kept(cursor.row, cursor.column)]);
    setText(readout, saidOf(cursor, kept, valueAt(cursor.row, cursor.column), state.groups ?? []));
  }

  function put(row, column) {
    cursor = { row: Math.max(0, Math.min(state.rows - 1, row)), column: Math.max(0, Math.min(state.columns - 1, column)) };
    if (!inView(cursor)) {
      const [seenX, seenY] = [room.wide / view.scale, room.tall / view.scale];
      if (cursor.column < view.x || cursor.column >= view.x + seenX) view.x = cursor.column - seenX / 2;
      if (cursor.row < view.y || cursor.row >= view.y + seenY) view.y = cursor.row - seenY / 2;
      moved();
    } else paint();
    say();
  }

  const spot = (event, canvas) => {
    const at = canvas.getBoundingClientRect();
    return [(event.clientX - at.left) * room.dpr, (event.clientY - at.top) * room.dpr];
  };
  const cellAt = ([x, y]) => {
    const [row, column] = [Math.floor(view.y + y / view.scale), Math.floor(view.x + x / view.scale)];
    return row >= 0 && row < state.rows && column >= 0 && column < state.columns && x < room.wide ? { row, column } : null;
  };

  function wire(canvas) {
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || !view) return;
      drag = { from: spot(event, canvas), x: view.x, y: view.y };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!view) return;
      const at = spot(event, canvas);
      if (drag && view.scale > room.fit) {
        view = { ...view, x: drag.x - (at[0] - drag.from[0]) / view.scale, y: drag.y - (at[1] - drag.from[1]) / view.scale };
        moved();
        return;
      }
      cursor = cellAt(at);
      paint();
      say();
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("pointerleave", () => { if (!drag && document.activeElement !== box) { cursor = null; paint(); say(); } });
    canvas.addEventListener("dblclick", (event) => zoom(1, spot(event, canvas)));
    canvas.addEventListener("wheel", (event) => {
      if (!view || !(event.ctrlKey || document.activeElement === box)) return; // else the page scrolls
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1 : -1, spot(event, canvas));
    }, { passive: false });
  }

  box.addEventListener("pointerdown", (event) => { if (event.target.localName === "canvas") box.focus({ preventScroll: true }); });
  box.addEventListener("keydown", (event) => {
    if (event.target !== box || event.metaKey || event.altKey || event.ctrlKey || !view) return;
    const leap = event.shiftKey ? 16 : 1;
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const span = spanOf();
    const here = cursor ?? { row: (span.top + span.bottom) >> 1, column: (span.left + span.right) >> 1 };
    if (move) put(here.row + move[0] * leap, here.column + move[1] * leap);
    else if (event.key === "+" || event.key === "=") zoom(1);
    else if (event.key === "-") zoom(-1);
    else if (event.key === "0") fit();
    else if (event.key === "Escape") { cursor = null; paint(); say(); }
    else return;
    event.preventDefault();
  });

  function redraw(next) {
    state = next;
    const infos = state.panels ?? [];
    const old = new Map(shown.map((panel) => [panel.info.id, panel]));
    shown = [];
    keyed(panels, infos, (info) => info.id, () => {
      const figure = make("figure", "lab-mask-panel");
      const canvas = make("canvas");
      setAttr(canvas, "role", "img");
      figure.append(make("figcaption"), canvas);
      wire(canvas);
      return figure;
    }, (figure, info) => {
      const [caption, canvas] = figure.children;
      setText(caption, info.title);
      setAttr(canvas, "aria-label", info.words);
      const first = maskFor(info.first);
      const second = info.second ? maskFor(info.second) : null;
      figure.hidden = !first || Boolean(info.second && !second);
      if (figure.hidden) return;
      const panel = { ...old.get(info.id), info, canvas, rows: state.rows, columns: state.columns, first, second, marked: info.marked };
      panel.strip = stripFor(panel, info);
      shown.push(panel);
    });
    panels.dataset.count = String(infos.length);
    panels.dataset.wide = String(state.columns > 1.6 * state.rows);
    setAttr(box, "aria-label", `${state.label}. Arrow keys move from weight to weight, + and − zoom, 0 shows all.`);
    box.hidden = shown.length === 0;
    setText(empty, state.empty);
    empty.hidden = shown.length > 0 || !state.empty;
    const key = `${state.rows}x${state.columns}`;
    if (el.dataset.shape !== key) {
      el.dataset.shape = key;
      [view, cursor] = [null, null];
      room.fit = 0;
    }
    values = null;
    if (state.values) values = { ...state.values, bytes: bytesOf(state.values.bytes) };
    if (values && values.bytes.length !== values.rows * values.columns) values = null;
    const at = JSON.stringify(state.at ?? null);
    if (at !== given && shown.length && measure()) {
      given = at;
      if (state.at) {
        const [row, column, scale] = state.at;
        view = { scale: Math.max(room.fit, Math.round(scale * room.dpr)), x: column, y: row };
        moved();
      }
    }
    paint();
    say();
  }

  const picture = (model.get("state") ?? {}).picture;
  if (picture) {
    el.classList.add("lab-has-picture");
    el.dataset.picture = picture;
    el.labPicture = async (format, ground) => pictureOf(maskPicture(shown), format, ground);
  }
  const again = () => redraw(model.get("state") ?? {});
  const retheme = new MutationObserver(again);
  retheme.observe(document.body, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-light"] });
  retheme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const watch = new ResizeObserver(paint);
  watch.observe(el);
  model.on("change:bits", again);
  const stop = follow(model, el, "lab-mask-view", redraw);
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    watch.disconnect();
    retheme.disconnect();
    model.off("change:bits", again);
    stop();
  };
}

export default { render };
