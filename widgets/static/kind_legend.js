// What the marks on token chips mean: {counts: {kind: number}, dropped}.

const KINDS = [
  ["accepted", "✓", "accepted", "Proposed by the draft, and it stands."],
  ["rejected", "✕", "rejected", "Proposed by the draft, compared with the model, and refused."],
  ["resampled", "↻", "put in", "The model's own token in place of a rejected one."],
  ["bonus", "+", "bonus", "All proposed tokens were accepted: the same pass gives one more."],
  ["plain", "○", "plain step", "Nothing was proposed: the pass gives one token, as without a draft."],
  ["unjudged", "?", "never judged", "Proposed after a token that was rejected: a guess for a text that does not exist."],
];

function render({ model, el }) {
  const list = make("ul", "lab-kinds");
  setAttr(list, "aria-label", "Marks of the tokens");
  const label = make("label", "lab-kinds-switch lab-needs-kernel");
  const box = make("input");
  box.type = "checkbox";
  label.append(box, make("span", "", "Show dropped"));
  box.addEventListener("change", () => post(model, { type: "dropped", dropped: box.checked }));
  el.replaceChildren(list, label);
  return follow(model, el, "lab-kind-legend", (state) => {
    const counts = state.counts ?? {};
    keyed(list, KINDS, ([kind]) => kind, ([kind, mark, words, title]) => {
      const item = make("li");
      item.dataset.kind = kind;
      item.title = title;
      const sign = make("i", "", mark);
      setAttr(sign, "aria-hidden", "true");
      item.count = make("b");
      item.append(sign, item.count, make("span", "", words));
      return item;
    }, (item, [kind]) => setText(item.count, (counts[kind] ?? 0).toLocaleString("en-GB")));
    if (box.checked !== Boolean(state.dropped)) box.checked = Boolean(state.dropped);
  });
}

export default { render };
