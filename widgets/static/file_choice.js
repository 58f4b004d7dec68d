// A button that takes one file from the visitor's disk: {label, title, accept, limit}. What is larger is not sent.

function render({ model, el }) {
  const input = make("input");
  input.type = "file";
  input.hidden = true;
  input.tabIndex = -1;
  const button = makeButton("lab-small", "", () => input.click());
  const said = make("span", "lab-hidden");
  setAttr(said, "role", "status");
  el.replaceChildren(button, input, said);
  input.addEventListener("change", async () => {
    const file = input.files?.[0];
    const { limit = 0 } = model.get("state") ?? {};
    if (!file) return;
    input.value = ""; // the same file may be chosen again
    if (file.size > limit) {
      post(model, { type: "refused", name: file.name, size: file.size });
      return;
    }
    setText(said, `${file.name} is being read`);
    try {
      model.send({ type: "file", name: file.name }, undefined, [await file.arrayBuffer()]);
    } catch {
      setText(said, `${file.name} could not be read`);
    }
  });
  return follow(model, el, "lab-file-choice lab-needs-kernel", (state) => {
    setText(button, state.label);
    setAttr(button, "title", state.title || null);
    setAttr(input, "aria-label", state.label);
    setAttr(input, "accept", state.accept || null);
  });
}

export default { render };
