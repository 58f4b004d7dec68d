// The button for light and dark; inside JupyterLab its own theme rules and the button hides.
function render({ el }) {
  const button = makeThemeButton();
  el.classList.add("lab-root");
  el.hidden = !document.body.classList.contains("lab-body");
  el.append(button);
  return () => button.remove();
}

export default { render };
