// The tree of a beam search: hover shows a path, a click follows it, arrow keys walk, ctrl and wheel zoom.
// Drawn as SVG, and only what is in sight. Where things stand is said by beam_layout.js, words by beam_words.js.

const MOST_HEIGHT = 440;
const FAR = 0.55; // below this size chips have no words

function render({ model, el }) {
  const tools = make("div", "lab-beam-tools");
  const zoomed = make("span", "lab-hidden");
  setAttr(zoomed, "role", "status");
  const button = (text, name, act) => {
    const node = makeButton("lab-small", text, act);
    setAttr(node, "aria-label", name);
    node.title = name;
    return node;
  };
  const smaller = button("−", "Smaller (−)", () => zoomTo(view.zoom / 1.25));
  const larger = button("+", "Larger (+)", () => zoomTo(view.zoom * 1.25));
  const fit = button("Fit", "Fit: the whole tree (0)", () => zoomTo(fitting()));
  const losers = button("Losers", "Losers: show the candidates that lost", () => change({ losers: !(drawn?.losers ?? false) }, true));
  const shared = button("Stretches", "Stretches: open those in which no living text branches", () => change({ shared: !view.shared }, true));
  tools.append(smaller, larger, fit, losers, shared, zoomed);
  setAttr(tools, "role", "toolbar");
  setAttr(tools, "aria-label", "View of the tree");
  const legend = make("div", "lab-beam-legend");
  const keys = { greedy: null, sampled: null };
  legend.append(legendKey("running", "running"), legendKey("shelf", "finished"), legendKey("dead", "lost"));
  for (const kind of ["greedy", "sampled"]) {
    keys[kind] = legendKey(kind, kind, () => change({ [kind]: !view[kind] }));
    legend.append(keys[kind]);
  }
  const port = make("div", "lab-beam-port");
  port.tabIndex = 0;
  setAttr(port, "role", "tree");
  setAttr(port, "aria-label", "Tree of the search");
  const svg = shape("svg", "lab-beam-svg", port);
  setAttr(svg, "role", "presentation");
  const layers = Object.fromEntries(["edges", "paths", "chips"].map((name) => [name, shape("g", `lab-beam-${name}`, svg)]));
  for (const name of ["edges", "paths"]) setAttr(layers[name], "aria-hidden", "true");
  const empty = make("p", "lab-beam-empty");
  const detail = make("div", "lab-beam-detail");
  const parts = { head: make("p", "lab-beam-head"), sentence: make("p", "lab-beam-sentence"), text: make("p", "lab-beam-text") };
  parts.prompt = make("span", "lab-beam-prompt");
  parts.words = make("bdi");
  parts.text.append(parts.prompt, parts.words);
  detail.append(...[parts.head, parts.sentence, parts.text]);
  const top = make("div", "lab-beam-top");
  top.append(legend, tools);
  el.replaceChildren(top, port, empty, detail);

  const base = makeId();
  const widths = new Map();
  const pen = make("canvas").getContext("2d");
  const echo = makeEcho();
  let view = { losers: null, shared: false, greedy: true, sampled: true, zoom: 1 };
  let seenView = "";
  let seenTree = null;
  let index = readTree(null);
  let drawn = null; // the layout on screen
  let state = {};
  let opened = new Map();
  let unfolded = new Set();
  let hovered = null; // key of the item under the pointer
  let walking = null; // key of the item that the arrow keys stand on
  let sticky = true; // stay at the newest column
  let placed = 0;
  let homing = false; // go to where the paths part, as soon as it is drawn

  function measure(text) {
    if (!widths.has(text)) {
      pen.font = `12px ${getComputedStyle(el).getPropertyValue("--lab-mono") || "monospace"}`;
      widths.set(text, pen.measureText(text).width);
    }
    return widths.get(text);
  }

  function change(values, clear = false) {
    view = { ...view, ...values };
    if (clear) {
      if ("losers" in values) opened = new Map();
      else unfolded = new Set();
    }
    echo.send(view);
    post(model, { type: "view", view });
    draw();
  }

  // size and place

  const fitting = () => (drawn ? Math.min(1, (port.clientWidth - 4) / drawn.width, (MOST_HEIGHT - 4) / drawn.height) : 1);
  function zoomTo(zoom, at = { x: port.clientWidth / 2, y: 0 }) {
    const before = view.zoom;
    const after = Math.min(2.5, Math.max(0.05, zoom));
    if (Math.abs(before - after) < 0.001) return;
    const point = { x: (port.scrollLeft + at.x) / before, y: (port.scrollTop + at.y) / before };
    change({ zoom: +after.toFixed(3) });
    port.scrollTo(point.x * after - at.x, point.y * after - at.y);
    paint();
  }
  port.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = port.getBoundingClientRect();
    zoomTo(view.zoom * Math.exp(-event.deltaY / 300), { x: event.clientX - box.left, y: event.clientY - box.top });
  }, { passive: false });
  port.addEventListener("scroll", () => {
    if (Math.abs(port.scrollLeft - placed) > 2) sticky = port.scrollLeft + port.clientWidth >= port.scrollWidth - 8;
    placed = port.scrollLeft;
    paint();
  });
  let drag = null;
  port.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") drag = { x: event.clientX, y: event.clientY, left: port.scrollLeft, top: port.scrollTop, far: false };
  });
  port.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.far && Math.hypot(dx, dy) < 5) return;
    if (!drag.far) port.setPointerCapture(event.pointerId);
    drag.far = true;
    port.classList.add("lab-beam-grabbed");
    port.scrollTo(drag.left - dx, drag.top - dy);
  });
  const drop = () => {
    port.classList.remove("lab-beam-grabbed");
    setTimeout(() => (drag = null)); // the click that ends a drag comes first
  };
  port.addEventListener("pointerup", drop);
  port.addEventListener("pointercancel", drop);

  // pointing, following, walking

  const itemAt = (target) => byKey(target.closest?.("[data-key]")?.getAttribute("data-key"));
  const byKey = (key) => (key == null ? null : (drawn?.items.find((item) => item.key === key) ?? null));
  const itemOf = (id) => {
    const item = drawn?.itemOf.get(id);
    return item?.closed ? null : (item ?? null);
  };
  const idOf = (item) => (typeof item?.last === "number" && item.last >= 0 ? item.last : null);

  function hover(item) {
    const key = item?.key ?? null;
    if (key === hovered) return;
    hovered = key;
    post(model, { type: "hover", node: idOf(item) });
    paint();
  }
  function press(item) {
    if (!item) return;
    walking = item.key;
    if (item.range && item.trunk) {
      unfolded.add(item.range.start);
      return draw();
    }
    const id = idOf(item);
    if (id !== null) post(model, { type: "lock", node: id === state.locked ? null : id });
    paint();
  }
  function toggle(item) {
    if (!item) return;
    if (item.range) unfolded.add(item.range.start);
    else opened.set(item.last, item.hidden > 0);
    draw();
  }
  svg.addEventListener("pointerover", (event) => !drag?.far && hover(itemAt(event.target)));
  svg.addEventListener("pointerleave", () => hover(null));
  svg.addEventListener("click", (event) => {
    if (drag?.far) return;
    const item = itemAt(event.target);
    if (event.target.closest("[data-fold]")) toggle(item);
    else press(item);
  });

  function neighbour(item, way) {
    const column = drawn.items.filter((other) => other.column === item.column).sort((a, b) => a.row - b.row);
    return column[column.indexOf(item) + way] ?? null;
  }
  const start = () => itemOf(state.locked) ?? itemOf(state.best) ?? drawn?.root ?? null;
  port.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !drawn) return;
    const item = byKey(walking) ?? start();
    const first = (kids) => [...kids].sort((a, b) => a.row - b.row)[0];
    const acts = {
      ArrowRight: () => walk(first(item.kids)),
      ArrowLeft: () => walk(item.parent),
      ArrowDown: () => walk(neighbour(item, 1)),
      ArrowUp: () => walk(neighbour(item, -1)),
      Home: () => walk(drawn.root),
      End: () => walk(itemOf(state.best)),
      Enter: () => press(item),
      " ": () => toggle(item),
      Escape: () => post(model, { type: "lock", node: null }),
      "+": () => zoomTo(view.zoom * 1.25),
      "=": () => zoomTo(view.zoom * 1.25),
      "-": () => zoomTo(view.zoom / 1.25),
      0: () => zoomTo(fitting()),
    };
    if (!acts[event.key] || !item) return;
    event.preventDefault();
    acts[event.key]();
  });
  function walk(item) {
    if (!item) return;
    walking = item.key;
    reveal(item);
    hovered = null;
    hover(item);
    paint();
  }
  /** Scroll so that an item is in sight. */
  function reveal(item) {
    const z = view.zoom;
    const [left, right, above, below] = [item.x * z - 12, (item.x + item.w) * z + 12, item.y * z - 8, (item.y + CHIP) * z + 8];
    const x = left < port.scrollLeft ? left : Math.max(port.scrollLeft, right - port.clientWidth);
    const y = above < port.scrollTop ? above : Math.max(port.scrollTop, below - port.clientHeight);
    port.scrollTo(x, y);
  }
  port.addEventListener("focus", () => {
    if (!port.matches(":focus-visible")) return;
    walk(byKey(walking) ?? start());
  });
  port.addEventListener("blur", () => {
    walking = null;
    hover(null);
    paint();
  });

  // drawing

  function draw() {
    const followed = new Set([...lineage(index.get, state.locked ?? -1), ...lineage(index.get, state.pointed ?? -1)]);
    const known = index.steps.length;
    const step = Math.min(state.step ?? -1, known - 1);
    const seen = { step, width: state.width ?? 1, planned: state.planned, over: Boolean(state.over), best: state.best ?? -1 };
    drawn = step < 0 ? null : layTree(index, seen, { view, opened, unfolded, followed, measure, prompt: state.prompt });
    empty.hidden = Boolean(drawn);
    port.hidden = top.hidden = detail.hidden = !drawn;
    setText(empty, state.empty || "No candidates yet.");
    if (!drawn) return;
    const z = view.zoom;
    setAttr(svg, "width", Math.ceil(drawn.width * z));
    setAttr(svg, "height", Math.ceil(drawn.height * z));
    setAttr(svg, "viewBox", `0 0 ${drawn.width} ${drawn.height}`);
    svg.classList.toggle("lab-beam-far", z < FAR);
    port.style.minHeight = state.over ? "" : `${Math.min(MOST_HEIGHT, ROW * (2 * seen.width + 3))}px`; // a living tree grows into it
    setText(zoomed, `size ${Math.round(z * 100)} %`);
    setAttr(losers, "aria-pressed", drawn.losers ? "true" : "false");
    setAttr(shared, "aria-pressed", view.shared ? "true" : "false");
    shared.hidden = !view.shared && drawn.ranges.length === 0 && unfolded.size === 0;
    for (const kind of Object.keys(keys)) {
      keys[kind].hidden = !index.paths.some((path) => path.kind === kind);
      setAttr(keys[kind], "aria-pressed", view[kind] ? "true" : "false");
    }
    if (sticky) {
      port.scrollLeft = port.scrollWidth;
      placed = port.scrollLeft;
    }
    if (homing && seen.over) goHome();
    paint();
  }

  /** A whole run is read from its beginning: from the prompt, or from shortly before greedy parts from the best text. */
  function goHome() {
    homing = false;
    const greedy = drawn.paths.find((path) => path.kind === "greedy");
    const parts = itemOf(greedy?.ids.find((id) => !drawn.sets.won.has(id)));
    const far = parts ? (parts.x + parts.w) * view.zoom - port.clientWidth / 2 : 0;
    port.scrollTo(far > port.clientWidth / 2 ? far : 0, 0);
    placed = port.scrollLeft;
  }

  /** The items and edges in sight (or all), and the path that is pointed at. */
  function paint(all = false) {
    if (!drawn) return;
    const z = view.zoom;
    const [left, right] = [port.scrollLeft / z - 160, (port.scrollLeft + port.clientWidth) / z + 160];
    const [above, below] = [port.scrollTop / z - 80, (port.scrollTop + Math.max(port.clientHeight, 200)) / z + 80];
    const seen = (item) => all || (item.x + item.w > left && item.x < right && item.y + CHIP > above && item.y < below);
    const pointed = byKey(hovered) ?? itemOf(state.pointed) ?? null;
    const locked = itemOf(state.locked);
    const lit = new Set();
    for (let item = pointed ?? locked; item; item = item.parent) lit.add(item);
    const held = new Set();
    for (let item = locked; item; item = item.parent) held.add(item);
    const walked = document.activeElement === port ? byKey(walking) : null;

    const edges = drawn.items.filter((i) => i.parent && (seen(i) || seen(i.parent)) && !(i.node.fate === "outside"));
    keyed(layers.edges, edges, (item) => item.key, () => shape("path", "lab-beam-edge"), (node, item) => {
      setAttr(node, "d", edgePath(item));
      const chance = Math.exp(Math.min(0, item.node.logProb ?? -9));
      setAttr(node, "stroke-width", ((lit.has(item) ? 1.5 : 0.8) + 4 * chance) * (z < FAR ? 0.5 : 1));
      setAttr(node, "data-state", item.state);
      setAttr(node, "data-lit", lit.has(item));
    });
    const lines = [];
    for (const path of drawn.paths) {
      const along = [...new Set(path.ids.map((id) => itemOf(id)).filter(Boolean))];
      for (const item of along) if (item.parent && (seen(item) || seen(item.parent))) lines.push({ item, kind: path.kind });
    }
    keyed(layers.paths, lines, (line) => `${line.kind} ${line.item.key}`, () => shape("path", "lab-beam-path"), (node, { item, kind }) => {
      setAttr(node, "d", edgePath(item, kind === "greedy" ? -5 : 5));
      setAttr(node, "data-kind", kind);
    });
    const passes = new Map();
    for (const path of drawn.paths) for (const id of path.ids) {
      const item = itemOf(id);
      if (item) passes.set(item, (passes.get(item) ?? new Set()).add(path.kind));
    }
    const chips = drawn.items.filter((item) => seen(item) || item === walked);
    keyed(layers.chips, chips, (item) => item.key, (item) => makeChip(item, base), (node, item) => paintChip(node, item, { lit, held, walked, index, state, passing: passes.get(item) }));
    setAttr(port, "aria-activedescendant", walked ? `${base}-${walked.key}` : null);
    const item = pointed ?? walked ?? locked;
    paintDetail(item ?? itemOf(state.best) ?? drawn.root, item && (item === locked ? "followed" : "pointed at"));
  }

  function paintDetail(item, whose) {
    const said = describe(index, item, drawn, state);
    const head = [["whose", whose ?? ""], ["", said.title], ...said.figures].filter(([, value]) => value !== "");
    keyed(parts.head, head, ([name], i) => `${i} ${name}`, ([name]) => {
      if (name === "whose") {
        const mark = make("span", "lab-beam-whose");
        mark.value = mark;
        return mark;
      }
      const node = make("span", name ? "lab-beam-figure" : "lab-beam-title");
      node.value = make(name ? "b" : "bdi");
      node.append(...(name ? [make("span", "", name), node.value] : [node.value]));
      return node;
    }, (node, [, value]) => setText(node.value, value));
    setText(parts.sentence, said.sentence);
    const prompt = String(state.prompt ?? "");
    setText(parts.prompt, prompt.length > 80 ? `…${prompt.slice(-80)}` : prompt);
    setText(parts.words, said.text);
  }

  el.classList.add("lab-has-picture");
  el.dataset.picture = "tree";
  el.labPicture = async (format, ground) => {
    paint(true);
    svg.classList.remove("lab-beam-far");
    const made = pictureOf(svg, format, ground); // its copy is made before the first wait
    svg.classList.toggle("lab-beam-far", view.zoom < FAR);
    paint();
    return made;
  };

  const takeTree = () => {
    const tree = model.get("tree") ?? (model.get("state") ?? {}).tree ?? null;
    if (tree === seenTree) return;
    const began = (tree?.run ?? "") !== (seenTree?.run ?? "");
    seenTree = tree;
    index = readTree(structuredClone(tree));
    if (!began) return;
    opened = new Map();
    unfolded = new Set();
    hovered = walking = null;
    sticky = !state.over; // a whole run is read from its beginning, a living one at its newest column
    homing = true;
  };
  const stop = follow(model, el, "lab-beam-tree", (next) => {
    if (next.step !== state.step || next.over !== state.over) {
      if (next.over) homing = homing || sticky;
      sticky = !next.over;
    }
    state = next;
    takeTree();
    const said = JSON.stringify(state.view ?? {});
    if (said !== seenView) {
      seenView = said;
      if (!echo.isEcho(state.view ?? {})) view = { ...view, ...state.view };
    }
    draw();
  });
  const regrow = () => {
    takeTree();
    draw();
  };
  model.on("change:tree", regrow);
  const watcher = new ResizeObserver(() => draw());
  watcher.observe(port);
  return () => {
    stop();
    watcher.disconnect();
    model.off("change:tree", regrow);
  };
}

export default { render };
