// A menu of files. Python makes them and sends the bytes; pictures are drawn here, by Bokeh itself.

const TYPES = { png: "image/png", svg: "image/svg+xml" };

/** The Bokeh plots of the page, in its order; with a name, the one that bears it. */
function findPlots(name) {
  const found = [];
  const search = (view) => {
    if (!view) return;
    if (view.canvas_view && view.export) found.push(view);
    else for (const child of view.child_views ?? []) search(child);
  };
  const index = window.Bokeh?.index;
  for (const view of index?.roots ?? Object.values(index ?? {})) search(view);
  const shown = found.filter((view) => view.el?.isConnected && view.el.getClientRects().length > 0);
  shown.sort((a, b) => a.el.getBoundingClientRect().top - b.el.getBoundingClientRect().top);
  return name === "*" ? shown : shown.filter((view) => view.model.name === name);
}

/** A plot drawn on the page's own ground, as a file. */
async function drawPlot(view, format, ground) {
  const layer = view.export(format, true);
  if (format === "svg") {
    const text = layer.ctx.get_serialized_svg(true);
    const at = text.indexOf(">", text.indexOf("<svg")) + 1;
    const rect = `<rect width="100%" height="100%" fill="${ground}"/>`;
    return new Blob([text.slice(0, at), rect, text.slice(at)], { type: TYPES.svg });
  }
  const canvas = make("canvas");
  canvas.width = layer.canvas.width;
  canvas.height = layer.canvas.height;
  const context = canvas.getContext("2d");
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(layer.canvas, 0, 0);
  return new Promise((done) => canvas.toBlob(done, TYPES.png));
}

async function savePlots(item, prefix, el) {
  const format = item.format ?? (item.id === "svg" ? "svg" : "png");
  const ground = getComputedStyle(el).getPropertyValue("--lab-surface").trim() || "#ffffff";
  const views = findPlots(item.plot ?? "*");
  for (const [i, view] of views.entries()) {
    const name = view.model.name || `${prefix}-${i + 1}`;
    saveFile(`${name}.${format}`, await drawPlot(view, format, ground));
  }
  // Pictures that Bokeh does not draw: elements of this class that can make a file of themselves.
  const others = item.plot ? [] : [...document.querySelectorAll(".lab-has-picture")].filter((node) => node.labPicture && node.getClientRects().length);
  for (const node of others) saveFile(`${prefix}-${node.dataset.picture}.${format}`, await node.labPicture(format, ground));
  return views.length + others.length;
}

function render({ model, el }) {
  const button = makeButton("lab-small", "Export ▾");
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
  el.replaceChildren(button, menu, said);
  button.popoverTargetElement = menu; // the browser opens and closes it

  let entry = 0; // the item to stand on when it opens
  const isOpen = () => menu.matches(":popover-open");
  const items = () => [...menu.querySelectorAll('[role="menuitem"]')];
  /** Below the button, or above it near the window's end; held by its right edge, so that its size need not be known. */
  function place() {
    const box = button.getBoundingClientRect();
    const above = box.bottom + items().length * 44 > innerHeight && box.top > innerHeight / 2;
    const room = Math.max(8, Math.min(innerWidth - box.right, innerWidth - 220));
    Object.assign(menu.style, {
      top: above ? "auto" : `${box.bottom + 4}px`,
      bottom: above ? `${innerHeight - box.top + 4}px` : "auto",
      right: `${room}px`,
      left: "auto",
    });
  }
  function close() {
    if (isOpen()) menu.hidePopover();
  }
  menu.addEventListener("beforetoggle", place);
  menu.addEventListener("toggle", () => {
    setAttr(button, "aria-expanded", isOpen() ? "true" : "false");
    if (!isOpen()) return;
    items().at(entry)?.focus({ preventScroll: true });
    entry = 0;
  });
  const scrolled = (event) => {
    if (isOpen() && !menu.contains(event.target)) place();
  };
  addEventListener("scroll", scrolled, true);
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    entry = event.key === "ArrowUp" ? -1 : 0;
    if (isOpen()) items().at(entry)?.focus({ preventScroll: true });
    else menu.showPopover();
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
    const item = ((model.get("state") ?? {}).items ?? []).find((each) => each.id === id);
    close();
    button.focus();
    if (!item || item.disabled) return;
    if (item.plot || item.id in TYPES) {
      let count = 0;
      try {
        count = await savePlots(item, (model.get("state") ?? {}).prefix || "picture", el);
      } catch (error) {
        console.warn("export of the pictures failed", error);
      }
      return setText(said, count ? `${count} saved` : "There is no picture to save yet.");
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
      const note = (typeof item.disabled === "string" && item.disabled) || item.note || "";
      setText(node.note, note);
      node.note.hidden = !note;
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
