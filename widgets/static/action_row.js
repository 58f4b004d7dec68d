// Buttons and links that a picture offers, as a pure function of {label, actions: [{id, label, title, href}]}.
function makeAction(model, action) {
  if (!action.href) return makeButton("lab-small", "", () => post(model, { type: "action", id: action.id }));
  const link = make("a", "lab-small lab-way");
  link.target = "_blank"; // the run on this page stays
  link.rel = "noopener";
  return link;
}

function render({ model, el }) {
  const group = make("div", "lab-actions");
  setAttr(group, "role", "group");
  el.replaceChildren(group);
  return follow(model, el, "lab-action-row lab-needs-kernel", (state) => {
    const actions = state.actions ?? [];
    setAttr(group, "aria-label", state.label || null);
    el.hidden = actions.length === 0;
    keyed(
      group,
      actions,
      (action) => `${action.id} ${Boolean(action.href)}`,
      (action) => makeAction(model, action),
      (node, action) => {
        setText(node, action.label);
        setAttr(node, "title", action.title || null);
        if (action.href) setAttr(node, "href", action.href);
      },
    );
  });
}

export default { render };
