// One bar a layer: how much it keeps, and of which kind it is (shade and pattern). Click chooses a layer.

const KINDS = { full: "full attention", sliding: "sliding window", other: "another kind" };

function sizeText(bytes) {
  if (typeof bytes !== "number" || !Number.isFinite(bytes)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let at = 0;
  while (value >= (at ? 1023.5 : 1024) && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  const digits = at === 0 ? 0 : value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${units[at]}`;
}

function render({ model, el }) {
  const strip = make("div", "lab-layer-strip-bars");
  setAttr(strip, "role", "group");
  const caption = make("p", "lab-caption");
  const legend = make("p", "lab-layer-legend");
  const table = make("table", "lab-hidden");
  const tableCaption = make("caption");
  const head = make("thead");
  const headRow = make("tr");
  headRow.append(...["layer", "kind", "bytes"].map((text) => {
    const cell = make("th", "", text);
    cell.scope = "col";
    return cell;
  }));
  head.append(headRow);
  const body = make("tbody");
  table.append(tableCaption, head, body);
  el.replaceChildren(strip, legend, caption, table);
  rove(strip, () => [...strip.children]);

  return follow(model, el, "lab-layer-strip", (state) => {
    const layers = state.layers ?? [];
    const title = state.title || "Bytes of each layer";
    const largest = Math.max(1, state.max_bytes ?? 0, ...layers.map((layer) => layer.bytes ?? 0));
    setAttr(strip, "aria-label", title);
    strip.classList.toggle("lab-many", layers.length > 48);
    keyed(strip, layers, (layer) => layer.index, (layer) => {
      const bar = makeButton("lab-layer-bar", "", () => post(model, { type: "layer", index: layer.index === (model.get("state") ?? {}).selected ? null : layer.index }));
      bar.tabIndex = -1;
      bar.fill = make("span", "lab-layer-fill");
      bar.append(bar.fill);
      return bar;
    }, (bar, layer) => {
      const kind = layer.kind in KINDS ? layer.kind : "other";
      const words = layer.title || `layer ${layer.index}: ${sizeText(layer.bytes)}, ${KINDS[kind]}`;
      bar.dataset.kind = kind;
      bar.title = words;
      setAttr(bar, "aria-label", words);
      setAttr(bar, "aria-pressed", layer.index === state.selected ? "true" : "false");
      const share = (layer.bytes ?? 0) / largest;
      const height = `${(share * 100).toFixed(1)}%`;
      if (bar.fill.style.height !== height) bar.fill.style.height = height;
    });
    if (layers.length && ![...strip.children].some((bar) => bar.tabIndex === 0)) strip.firstChild.tabIndex = 0;
    const kinds = [...new Set(layers.map((layer) => (layer.kind in KINDS ? layer.kind : "other")))];
    legend.hidden = kinds.length < 2;
    keyed(legend, kinds, (kind) => kind, (kind) => {
      const item = make("span", "lab-layer-key");
      const mark = make("i");
      item.dataset.kind = kind;
      item.append(mark, make("span", "", KINDS[kind]));
      return item;
    });
    setText(caption, state.caption);
    caption.hidden = !state.caption;
    setText(tableCaption, title);
    keyed(body, layers, (layer) => layer.index, () => {
      const row = make("tr");
      row.append(make("td"), make("td"), make("td"));
      return row;
    }, (row, layer) => {
      setText(row.children[0], layer.index);
      setText(row.children[1], KINDS[layer.kind] ?? KINDS.other);
      setText(row.children[2], layer.bytes ?? "–");
    });
  });
}

export default { render };
