// The button for light and dark; inside JupyterLab its own theme rules and the button hides.
function render({ model, el }) {
  const state = model.get("state") ?? {};
  const button = makeThemeButton(state.words ?? {});
  el.classList.add("lab-root");
  setAttr(el, "lang", state.lang || "en");
  el.hidden = !document.body.classList.contains("lab-body");
  el.append(button);
  return () => button.remove();
}

export default { render };
