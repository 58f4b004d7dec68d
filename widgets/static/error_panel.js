// An error in words, with what to do.

function render({ model, el }) {
  const panel = make("div", "lab-error-panel-box");
  setAttr(panel, "role", "alert");
  const symbol = make("span", "lab-error-symbol", "!");
  setAttr(symbol, "aria-hidden", "true");
  const words = make("div", "lab-error-words");
  const message = make("p", "lab-error-message");
  const remedy = make("p", "lab-error-remedy");
  words.append(message, remedy);
  const dismiss = makeButton("lab-quiet", "Dismiss", () => {
    dismissed = keyOf(model.get("state") ?? {});
    panel.hidden = true;
    post(model, { type: "dismiss" });
  });
  panel.append(symbol, words, dismiss);
  el.replaceChildren(panel);
  let dismissed = null;
  const keyOf = (state) => JSON.stringify([state.message, state.remedy, state.code]);
  return follow(model, el, "lab-error-panel", (state) => {
    if (!state.open) dismissed = null;
    const open = Boolean(state.open && state.message) && dismissed !== keyOf(state);
    setRich(message, open ? state.message : "");
    setRich(remedy, open ? state.remedy : "");
    remedy.hidden = !(open && state.remedy);
    panel.dataset.code = state.code ?? "";
    panel.hidden = !open;
    el.classList.toggle("lab-empty", !open);
  });
}

export default { render };
