// The page's link holds its whole state, in the part that browsers do not send (after the #). Values are JSON,
// except texts that no JSON reader would take for something else.

function encodeLink(query) {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined) continue;
    out.set(name, typeof value === "string" && !isJson(value) ? value : JSON.stringify(value));
  }
  return out.toString();
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** What the address says: values before the # (a link written by hand) and, above them, those after it. */
function decodeLink(address) {
  const values = {};
  for (const part of [address.search, address.hash.replace(/^#/, "?")]) {
    for (const [name, text] of new URLSearchParams(part)) {
      if (["__proto__", "token", "theme", "lang", "voila-theme", "voila-template"].includes(name)) continue;
      values[name] = isJson(text) ? JSON.parse(text) : text;
    }
  }
  return values;
}

function makeLink(query) {
  const url = new URL(location.href);
  url.searchParams.delete("token"); // never hand on who may enter
  url.hash = encodeLink(query);
  return url.href;
}

function render({ model, el }) {
  const label = "Copy link";
  const button = makeButton("lab-small", label, async () => {
    const link = makeLink((model.get("state") ?? {}).query);
    const done = await copyText(link);
    setText(button, done ? "Copied" : label);
    setText(said, done ? "The link is copied." : "");
    field.hidden = done;
    if (!done) {
      field.value = link;
      field.select();
    }
    clearTimeout(timer);
    timer = setTimeout(() => setText(button, label), 2000);
  });
  button.title = "A link that opens this page with the same settings.";
  const field = make("input", "lab-link-field");
  field.readOnly = true;
  field.hidden = true;
  setAttr(field, "aria-label", "Link to this page with its settings");
  const said = make("span", "lab-hidden");
  setAttr(said, "role", "status");
  el.replaceChildren(button, field, said);
  let timer = 0;
  let address = 0;
  const stop = follow(model, el, "lab-link", (state) => {
    if (!state.follow) return;
    clearTimeout(address);
    address = setTimeout(() => history.replaceState(history.state, "", makeLink(state.query)), 500);
  });
  const tell = () => post(model, { type: "link", values: decodeLink(location) });
  tell();
  window.addEventListener("hashchange", tell);
  return () => {
    stop();
    clearTimeout(timer);
    clearTimeout(address);
    window.removeEventListener("hashchange", tell);
  };
}

export default { render };
