// Puts BokehJS into the page once, from the text that Python sends: no request to any host.
function render({ model, el }) {
  el.hidden = true;
  if (!globalThis.Bokeh) {
    const script = document.createElement("script");
    script.text = model.get("state").source;
    document.head.append(script);
  }
  globalThis.dispatchEvent(new Event("lab-bokeh-ready"));
}

export default { render };
