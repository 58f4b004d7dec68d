// All parameters as one bar: {parts: [[name, share, changed, title]], truth, label, word}.

const TRUTH = { simulated: "SIMULATED", packed: "PACKED", "dense, smaller": "SMALLER" };
const TRUTH_WORDS = {
  simulated: (word) => `Simulated: ${word === "pruned" ? "zeros stand in dense tensors" : "dequantized weights run"}, no memory is saved.`,
  packed: () => "Packed: codes are what memory holds and the kernels read.",
  "dense, smaller": () => "Smaller: rows and columns are gone, what is left is dense.",
};

function render({ model, el }) {
  const bar = make("div", "lab-coverage-bar");
  setAttr(bar, "role", "img");
  const key = make("p", "lab-coverage-key");
  const filled = make("span");
  const word = make("span");
  filled.append(make("i", "lab-coverage-part"), word);
  const dense = make("span", "", "dense");
  dense.prepend(make("i", "lab-coverage-part lab-dense"));
  const badge = make("span", "lab-coverage-badge");
  key.append(filled, dense, badge);
  el.replaceChildren(bar, key);

  return follow(model, el, "lab-coverage", (state) => {
    setAttr(bar, "aria-label", state.label);
    setText(word, state.word ?? "quantized");
    keyed(bar, state.parts ?? [], (_part, i) => i, () => {
      const node = make("span", "lab-coverage-part");
      node.words = make("span", "lab-coverage-words");
      node.append(node.words);
      return node;
    }, (node, [name, share, quantized, title]) => {
      node.classList.toggle("lab-dense", !quantized);
      node.style.flexGrow = String(share);
      node.title = title;
      setText(node.words, share > 0.1 ? name : "");
    });
    setText(badge, TRUTH[state.truth] ?? "");
    badge.title = TRUTH_WORDS[state.truth]?.(state.word) ?? "";
    badge.dataset.truth = state.truth;
  });
}

export default { render };
