// One Bokeh plot as a pure function of its item and its state {label, data, props}.
// item:  what bokeh.embed.json_item made; it travels and is drawn once.
// data:  {source name: {column: values}}, replaced as a whole, so that no update can be lost.
// props: {model name: {property: value}}.
// Colours come from the page's CSS variables: a model tagged "line_color:--lab-text" follows the theme.

function bokehReady() {
  if (globalThis.Bokeh) return Promise.resolve(globalThis.Bokeh);
  return new Promise((resolve) => {
    globalThis.addEventListener("lab-bokeh-ready", () => resolve(globalThis.Bokeh), { once: true });
  });
}

const numbers = (values) => values.map((v) => (v === null ? NaN : v));

function applyData(doc, data, seen) {
  for (const [name, columns] of Object.entries(data ?? {})) {
    const text = JSON.stringify(columns);
    if (seen.get(name) === text) continue;
    seen.set(name, text);
    const source = doc.get_model_by_name(name);
    if (!source) continue;
    source.data = Object.fromEntries(Object.entries(columns).map(([key, values]) => [key, numbers(values)]));
  }
}

function applyProps(doc, props) {
  for (const [name, values] of Object.entries(props ?? {})) {
    const target = doc.get_model_by_name(name);
    if (target) target.setv(values);
  }
}

function applyTheme(doc, el) {
  const style = getComputedStyle(el);
  for (const target of doc._all_models.values()) {
    const changes = {};
    for (const tag of target.tags ?? []) {
      const [property, variable] = String(tag).split(":");
      const value = style.getPropertyValue(variable ?? "").trim();
      if (value) changes[property] = value;
    }
    if (Object.keys(changes).length) target.setv(changes);
  }
}

/** Bokeh puts its own layer into the tab order, where it does nothing, has no name and shows no focus. */
function leaveTabOrder(root) {
  for (const node of root.querySelectorAll("*")) {
    if (node.hasAttribute("tabindex")) node.tabIndex = -1;
    if (node.shadowRoot) leaveTabOrder(node.shadowRoot);
  }
}

// Bokeh moves a canvas by half a pixel before it clears it: half of the first column and row of pixels stays, and with
// it whatever a redraw left there. Mended once, for all plots of the page.
function clearWhole(views) {
  const layer = [...views][0]?.canvas_view?.primary;
  const kind = layer && Object.getPrototypeOf(layer);
  if (!kind?.clear || kind.labClears) return;
  const own = kind.clear;
  kind.labClears = true;
  kind.clear = function () {
    if (this.canvas instanceof HTMLCanvasElement) {
      this.undo_transform((ctx) => ctx.clearRect(0, 0, this.canvas.width, this.canvas.height));
    } else {
      own.call(this);
    }
  };
}

function render({ model, el }) {
  el.classList.add("lab-plot");
  const figure = document.createElement("div");
  figure.className = "lab-plot-figure";
  figure.setAttribute("role", "img");
  el.append(figure);
  let doc = null;
  let gone = false;
  const seen = new Map();

  const update = () => {
    const state = model.get("state");
    figure.setAttribute("aria-label", state.label ?? "");
    if (!doc) return;
    applyProps(doc, state.props);
    applyData(doc, state.data, seen);
  };
  const retheme = () => doc && applyTheme(doc, el);
  const observer = new MutationObserver(retheme);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-light"] });
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

  bokehReady()
    .then((Bokeh) => Bokeh.embed.embed_item(model.get("item"), figure))
    .then((views) => {
      if (gone) return;
      clearWhole(views);
      doc = [...views][0].model.document;
      update();
      retheme();
      leaveTabOrder(figure);
      el.dataset.ready = "true";
    })
    .catch((error) => {
      figure.textContent = "This plot could not be drawn: " + error.message;
    });

  model.on("change:state", update);
  return () => {
    gone = true;
    observer.disconnect();
    model.off("change:state", update);
    if (doc) doc.clear();
  };
}

export default { render };
