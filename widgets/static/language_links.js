// Links to the page's other languages. Inside JupyterLab there is no address to change, so they hide.
function render({ model, el }) {
  const nav = make("nav", "lab-languages");
  el.append(nav);
  const stop = follow(model, el, "lab-language-links", (state) => {
    el.hidden = !document.body.classList.contains("lab-body");
    setAttr(nav, "aria-label", state.label);
    keyed(nav, state.links ?? [], (item) => item.lang, ({ label, lang, href }) => {
      const link = make("a", "lab-language", label);
      for (const [name, value] of Object.entries({ href, lang, hreflang: lang })) setAttr(link, name, value);
      keepAddress(link);
      return link;
    });
  });
  return () => {
    stop();
    nav.remove();
  };
}

export default { render };
