// Links to the other pages. Inside JupyterLab there is nothing to link to, so it hides.
function render({ model, el }) {
  const nav = make("nav", "lab-pages");
  el.append(nav);
  const stop = follow(model, el, "lab-page-links", (state) => {
    setAttr(nav, "aria-label", state.label);
    el.hidden = !document.body.classList.contains("lab-body");
    keyed(
      nav,
      state.pages ?? [],
      (page) => page.href,
      () => make("a"),
      (link, page) => {
        setText(link, page.label);
        setAttr(link, "href", page.here ? null : page.href);
        setAttr(link, "aria-current", page.here ? "page" : null);
      },
    );
  });
  return () => {
    stop();
    nav.remove();
  };
}

export default { render };
