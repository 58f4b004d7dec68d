// Shared helpers. They stand in front of each module (see widgets/assets.py); nothing is imported from anywhere.
// Text enters the page through textContent alone.

/** A new element with a class and a text. */
function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

/** A button that submits nothing. */
function makeButton(className, text, onClick) {
  const node = make("button", className, text);
  node.type = "button";
  if (onClick) node.addEventListener("click", onClick);
  return node;
}

/** Set a text only where it changed: selections and screen readers notice every write. */
function setText(node, text) {
  const value = String(text ?? "");
  if (node.textContent !== value) node.textContent = value;
}

/** Set or (null, undefined, false) remove an attribute, only where it changed. */
function setAttr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Text in which `backticks` mark code. */
function setRich(node, text) {
  const value = String(text ?? "");
  if (node.labRich === value) return;
  node.labRich = value;
  node.replaceChildren(...value.split("`").map((part, i) => (i % 2 ? make("code", "", part) : part)).filter((part) => part !== ""));
}

/** A text of the catalogue with `values` in its {placeholders}. */
function fill(text, values) {
  return String(text ?? "").replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Make the children of `parent` follow `items`, keeping the nodes of the same key. */
function keyed(parent, items, keyOf, create, update) {
  const old = parent.labKeyed ?? new Map();
  const now = new Map();
  let place = parent.firstChild;
  items.forEach((item, i) => {
    const key = keyOf(item, i);
    const node = old.get(key) ?? create(item, i);
    now.set(key, node);
    update?.(node, item, i);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  });
  for (const [key, node] of old) if (now.get(key) !== node) node.remove();
  parent.labKeyed = now;
}

let idCount = 0;
const idBase = Math.random().toString(36).slice(2, 8);
/** An id that no other widget on the page has. */
function makeId() {
  idCount += 1;
  return `lab-${idBase}-${idCount}`;
}

/** A message to Python. Without a kernel there is nobody to hear it, which the heartbeat says. */
function post(model, message) {
  try {
    model.send(message);
    return true;
  } catch {
    return false;
  }
}

/** Call `draw(state)` now and at each change; gives back what ends it. Views that are not translated are in English. */
function follow(model, el, className, draw) {
  el.classList.add("lab-root", ...className.split(" "));
  const redraw = () => {
    const state = model.get("state") ?? {};
    setAttr(el, "lang", state.lang || "en");
    draw(state);
  };
  model.on("change:state", redraw);
  redraw();
  return () => model.off("change:state", redraw);
}

/** Tells a value that Python gives back (an echo of what was sent) from one that Python chose. */
function makeEcho() {
  let sent = [];
  return {
    send(value) {
      sent.push({ key: JSON.stringify(value), at: performance.now() });
    },
    isEcho(value) {
      const key = JSON.stringify(value);
      sent = sent.filter((entry) => performance.now() - entry.at < 5000);
      const at = sent.findIndex((entry) => entry.key === key);
      if (at < 0) return false;
      sent = sent.slice(at + 1);
      return true;
    },
  };
}

/** Arrow keys move among `nodes()`; one of them is in the tab order. */
function rove(parent, nodes, columns) {
  parent.addEventListener("keydown", (event) => {
    const all = nodes();
    const at = all.indexOf(document.activeElement?.getRootNode() === document ? document.activeElement : null);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const wide = columns?.() ?? 1;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
    let to = null;
    if (step !== undefined) to = Math.min(all.length - 1, Math.max(0, at + step));
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = all.length - 1;
    if (to === null) return;
    event.preventDefault();
    all[to].focus();
  });
  parent.addEventListener("focusin", (event) => {
    const all = nodes();
    if (all.includes(event.target)) for (const node of all) node.tabIndex = node === event.target ? 0 : -1;
  });
}

/** Put a text on the clipboard; where the page may not (plain HTTP), the old way; whether it worked. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", "lab-hidden");
    area.value = text;
    const back = document.activeElement;
    (back?.closest?.("dialog") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    back?.focus?.();
    return done;
  }
}

/** Offer bytes as a file. */
function saveFile(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = make("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
