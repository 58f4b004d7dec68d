// A page saved to disk. Python wrote what it shows at first and what each thing that a visitor can do changes of it
// (widgets/exported/rehearsal.py); here the answers are looked up. No kernel, no server, no network.

const FIELDS = ["index", "node", "round", "row", "step", "dropped", "id", "expanded"];
const messageKey = (message) => JSON.stringify(FIELDS.map((name) => message[name] ?? null));
const valueKey = (value) => JSON.stringify([typeof value === "number" ? Number(value.toPrecision(6)) : value]);

/** The value at `path` of `root` replaced, everything around it new; undefined takes it away. */
function replaced(root, path, value) {
  if (path.length === 0) return value;
  const [name, ...rest] = path;
  const copy = Array.isArray(root) ? [...root] : { ...root };
  const next = replaced(copy[name], rest, value);
  if (next === undefined) delete copy[name];
  else copy[name] = next;
  return copy;
}

const look = (root, path) => path.reduce((value, name) => value?.[name], root);

/** Draw the page of `saved` into `body`; `modules` by name. Gives back what tests look at. */
function openPage(saved, modules, body) {
  const nodes = new Map(); // number: { el, model, shown }
  const active = []; // slots that a visitor moved, the earliest first: { slot, key }
  const together = new Set(saved.together.map((pair) => pair.join()));
  const slotAt = new Map(saved.slots.map((slot, i) => [`${slot.view} ${slot.kind}`, i]));

  /** A value of the file: many are the beginning of a list that the page shows at first. */
  function valueOf(index, place) {
    const value = saved.values[index];
    if (value && typeof value === "object" && !Array.isArray(value) && "$" in value) {
      return value.$ === "head" ? look(saved.nodes, place).slice(0, value.n) : undefined;
    }
    return value;
  }

  /** What the node of this number shows now. */
  function shownNow(number) {
    let shown = saved.nodes[number];
    for (const { slot, key } of active) {
      saved.slots[slot].places.forEach((place, i) => {
        if (place[0] !== number) return;
        const value = valueOf(saved.slots[slot].options[key][i], place);
        if (place.length > 1 || value !== undefined) shown = replaced(shown, place.slice(1), value); // else it is not on the page
      });
    }
    return shown;
  }

  function build(number) {
    if (nodes.has(number)) return nodes.get(number).el;
    const shown = shownNow(number);
    const el = document.createElement("div");
    el.className = shown.classes.join(" ");
    el.style.display = shown.display;
    const node = { el, model: null, shown };
    nodes.set(number, node);
    if (shown.children) el.append(...shown.children.map(build));
    return el;
  }

  /** Views are drawn when they are in the document: some measure themselves. */
  function drawAll() {
    for (const [number, node] of nodes) {
      const { module, state, traits } = node.shown;
      if (!module || node.model) continue;
      node.model = standIn(state, { traits, answers: null, onSend: (message) => hear(number, message) });
      try {
        modules[module].render({ model: node.model, el: node.el });
      } catch (error) {
        node.el.textContent = `This part of the page could not be drawn: ${error.message}`;
        console.error(error);
      }
    }
  }

  function refresh(numbers) {
    for (const number of numbers) {
      const node = nodes.get(number);
      if (!node) continue;
      const [old, shown] = [node.shown, shownNow(number)];
      node.shown = shown;
      node.el.style.display = shown.display;
      if (shown.children && JSON.stringify(shown.children) !== JSON.stringify(old.children)) node.el.replaceChildren(...shown.children.map(build));
      if (!node.model) continue;
      for (const [name, value] of Object.entries(shown.traits ?? {})) if (value !== old.traits[name]) node.model.set(name, value);
      // What the page itself keeps (an answer, a folded lesson) stays, unless the change names it.
      const changes = Object.fromEntries(Object.entries(shown.state).filter(([name, value]) => value !== old.state[name]));
      if (Object.keys(changes).length) node.model.set("state", { ...node.model.get("state"), ...changes });
    }
    drawAll();
  }

  const touched = (slot) => saved.slots[slot].places.map((place) => place[0]);

  function choose(slot, key) {
    const { kind, options, base } = saved.slots[slot];
    const there = active.findIndex((entry) => entry.slot === slot);
    const fits = (entry) => entry.slot === slot || together.has(`${entry.slot},${slot}`);
    const on = key in options && key !== base;
    // What lasts as long as the pointer stays changes nothing else that a visitor chose.
    if (kind === "hover" && on && !active.every(fits)) return;
    const changed = new Set(touched(slot));
    if (there >= 0) active.splice(there, 1);
    if (on) {
      for (const entry of [...active]) {
        if (fits(entry)) continue;
        active.splice(active.indexOf(entry), 1);
        touched(entry.slot).forEach((number) => changed.add(number));
      }
      active.push({ slot, key });
    }
    refresh(changed);
  }

  function hear(number, message) {
    const model = nodes.get(number).model;
    const keep = (changes) => model.set("state", { ...model.get("state"), ...changes });
    if (message.type === "ping") queueMicrotask(() => model.receive({ type: "pong", n: message.n }));
    else if (message.type === "export") deliver(model, message.id);
    else if (message.type === "values") {
      for (const [name, value] of Object.entries(message.changed ?? {})) {
        const slot = slotAt.get(`${number} values.${name}`);
        if (slot !== undefined) choose(slot, valueKey(value));
      }
    } else if (slotAt.has(`${number} ${message.type}`)) choose(slotAt.get(`${number} ${message.type}`), messageKey(message));
    else if (["play", "fold", "answer", "dismiss"].includes(message.type)) keep(reducers[message.type](model.get("state"), message));
    else if (message.type === "view") keep({ view: { ...model.get("state").view, ...message.view } });
  }

  /** A file that stands in this one. */
  function deliver(model, id) {
    const file = saved.files[id];
    if (!file) return model.receive({ type: "refused", text: "This page does not hold it." });
    const bytes = Uint8Array.from(atob(file.base64), (char) => char.charCodeAt(0));
    return model.receive({ type: "file", name: file.name, mime: file.mime }, [bytes]);
  }

  body.append(build(saved.root));
  drawAll();
  return { nodes, active };
}

/** Draw what this document holds, in the theme that was chosen last, else the system's. */
function start(modules) {
  let kept = null;
  try {
    kept = localStorage.getItem("lab-theme");
  } catch {
    // refused to pages from disk by some browsers
  }
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.body.dataset.theme = dark ? "dark" : "light";
  document.body.dataset.jpThemeLight = String(!dark);
  window.labPage = openPage(JSON.parse(document.getElementById("lab-saved").textContent), modules, document.body);
  document.body.dataset.ready = "true";
}
