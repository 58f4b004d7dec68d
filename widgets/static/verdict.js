// A finding as a heading with a mark: {tone: good | bad | even | none | pending, text, notes}.

const TONE_MARKS = { good: "✓", bad: "✕", even: "=", none: "–", pending: "…" };

function render({ model, el }) {
  const line = make("div", "lab-verdict-line");
  const mark = make("span", "lab-verdict-mark");
  setAttr(mark, "aria-hidden", "true");
  const words = make("h2");
  const notes = make("div", "lab-verdict-notes");
  line.append(mark, words);
  el.replaceChildren(line, notes);
  return follow(model, el, "lab-verdict", (state) => {
    const tone = state.tone in TONE_MARKS ? state.tone : "pending";
    el.dataset.tone = tone;
    setText(mark, TONE_MARKS[tone]);
    setText(words, state.text);
    line.hidden = !state.text;
    keyed(notes, state.notes ?? [], (_note, i) => i, () => make("p"), setText);
  });
}

export default { render };
