// Buttons that a picture offers, as a pure function of {label, actions: [{id, label, title}]}.
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
      (action) => action.id,
      (action) => makeButton("lab-small", "", () => post(model, { type: "action", id: action.id })),
      (button, action) => {
        setText(button, action.label);
        setAttr(button, "title", action.title || null);
      },
    );
  });
}

export default { render };
