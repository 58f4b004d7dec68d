// A menu of files. Python makes them and sends the bytes; pictures are drawn here, by Bokeh itself.

const TYPES = { png: "image/png", svg: "image/svg+xml" };

/** The Bokeh view of the plot called `name` (its model's `name`), wherever it lies in the page. */
function findPlot(name) {
  const seen = new Set();
  const search = (view) => {
    if (!view || seen.has(view)) return null;
    seen.add(view);
    if (view.model?.name === name && view.export) return view;
    for (const child of view.child_views ?? []) {
      const found = search(child);
      if (found) return found;
    }
    return null;
  };
  for (const view of window.Bokeh?.index?.roots ?? Object.values(window.Bokeh?.index ?? {})) {
    const found = search(view);
    if (found) return found;
  }
  return null;
}

async function drawPlot(name, format) {
  const view = findPlot(name);
  if (!view) return null;
  const layer = view.export(format, true);
  if (format === "svg") return new Blob([layer.ctx.get_serialized_svg(true)], { type: TYPES.svg });
  return layer.to_blob ? layer.to_blob() : new Promise((done) => layer.canvas.toBlob(done, TYPES.png));
}

function render({ model, el }) {
  const button = makeButton("lab-small", "Export ▾", () => (isOpen() ? close() : open("first")));
  const menu = make("div", "lab-menu");
  const said = make("span", "lab-export-note");
  setAttr(said, "role", "status");
  menu.id = makeId();
  menu.popover = "auto";
  setAttr(menu, "role", "menu");
  setAttr(menu, "aria-label", "Export");
  setAttr(button, "aria-label", "Export");
  setAttr(button, "aria-haspopup", "menu");
  setAttr(button, "aria-controls", menu.id);
  setAttr(button, "aria-expanded", "false");
  button.popoverTargetElement = null;
  el.replaceChildren(button, menu, said);

  let closedAt = 0;
  const isOpen = () => menu.matches(":popover-open");
  const items = () => [...menu.querySelectorAll('[role="menuitem"]')];
  function open(which) {
    if (performance.now() - closedAt < 80) return; // the press that closed it
    menu.showPopover();
    const box = button.getBoundingClientRect();
    const height = menu.offsetHeight;
    const above = box.bottom + height + 8 > innerHeight && box.top > height;
    menu.style.top = `${above ? box.top - height - 4 : box.bottom + 4}px`;
    menu.style.left = `${Math.max(8, Math.min(box.right - menu.offsetWidth, innerWidth - menu.offsetWidth - 8))}px`;
    const all = items();
    (which === "last" ? all.at(-1) : all[0])?.focus();
  }
  function close() {
    if (isOpen()) menu.hidePopover();
  }
  menu.addEventListener("toggle", (event) => {
    setAttr(button, "aria-expanded", event.newState === "open" ? "true" : "false");
    if (event.newState !== "closed") return;
    closedAt = performance.now();
  });
  const scrolled = (event) => {
    if (!menu.contains(event.target)) close();
  };
  addEventListener("scroll", scrolled, true);
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    open(event.key === "ArrowUp" ? "last" : "first");
  });
  menu.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(event.target);
    const to = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Tab") close();
    if (event.key === "Escape") {
      event.preventDefault();
      close();
      button.focus();
    }
    if (to === undefined) return;
    event.preventDefault();
    all[to].focus();
  });

  async function choose(id) {
    const item = ((model.get("state") ?? {}).items ?? []).find((entry) => entry.id === id);
    close();
    button.focus();
    if (!item || item.disabled) return;
    if (item.plot) {
      const format = item.format === "svg" ? "svg" : "png";
      let blob = null;
      try {
        blob = await drawPlot(item.plot, format);
      } catch (error) {
        console.warn("export of the picture failed", error);
      }
      if (blob) {
        saveFile(item.name || `${item.plot}.${format}`, blob);
        return setText(said, "saved");
      }
    }
    setText(said, "preparing …");
    post(model, { type: "export", id });
  }
  const hear = (message, buffers) => {
    if (message?.type === "file") {
      saveFile(String(message.name || "export"), new Blob(buffers ?? [], { type: message.mime || "application/octet-stream" }));
      setText(said, "saved");
    } else if (message?.type === "refused") setText(said, message.text);
  };
  model.on("msg:custom", hear);

  const stop = follow(model, el, "lab-export lab-needs-kernel", (state) => {
    const entries = state.items ?? [];
    button.disabled = entries.length === 0;
    keyed(menu, entries, (item) => item.id, (item) => {
      const node = makeButton("lab-menu-item", "", () => choose(item.id));
      setAttr(node, "role", "menuitem");
      node.tabIndex = -1;
      node.main = make("span", "lab-menu-label");
      node.note = make("span", "lab-menu-note");
      node.append(node.main, node.note);
      return node;
    }, (node, item) => {
      setText(node.main, item.label);
      setText(node.note, item.disabled || item.note || "");
      node.note.hidden = !(item.disabled || item.note);
      setAttr(node, "aria-disabled", item.disabled ? "true" : null);
    });
  });
  return () => {
    stop();
    close();
    model.off("msg:custom", hear);
    removeEventListener("scroll", scrolled, true);
  };
}

export default { render };
