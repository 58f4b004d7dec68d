// Two rows of tokens on one axis: {pairs: [[[text, p] | null, [text, p] | null, same, weight, title]], start, selected,
// locked, label, empty, rows}. A pair is one button; where its tokens differ the lower one has a mark and another
// ground. With `rows` 3 a pair ends in [text, p] | null and same of a third row.

function render({ model, el }) {
  const list = make("div", "lab-pairs");
  setAttr(list, "role", "group");
  const empty = make("p", "lab-pairs-empty");
  el.replaceChildren(list, empty);
  let hovered = null;

  const indexOf = (target) => {
    const pair = target.closest?.("[data-index]");
    return pair && list.contains(pair) ? Number(pair.dataset.index) : null;
  };
  const hover = (index) => {
    if (index === hovered) return;
    hovered = index;
    post(model, { type: "hover", index });
  };
  list.addEventListener("pointerover", (event) => hover(indexOf(event.target)));
  list.addEventListener("pointerleave", () => hover(null));
  list.addEventListener("focusin", (event) => {
    if (event.target.matches(":focus-visible")) hover(indexOf(event.target));
  });
  list.addEventListener("focusout", (event) => {
    if (!list.contains(event.relatedTarget)) hover(null);
  });
  list.addEventListener("click", (event) => {
    const index = indexOf(event.target);
    if (index === null) return;
    post(model, { type: "lock", index: (model.get("state") ?? {}).locked === index ? null : index });
  });
  rove(list, () => [...list.children]);

  function makeWord(className) {
    const word = make("span", `lab-pair-word ${className}`);
    word.mark = make("i");
    setAttr(word.mark, "aria-hidden", "true");
    word.text = make("bdi");
    word.p = make("small");
    word.append(word.mark, word.text, word.p);
    return word;
  }

  function makePair() {
    const pair = makeButton("lab-pair", "");
    pair.tabIndex = -1;
    pair.upper = makeWord("lab-pair-upper");
    pair.lower = makeWord("lab-pair-lower");
    pair.third = makeWord("lab-pair-third");
    pair.bar = make("span", "lab-pair-bar");
    setAttr(pair.bar, "aria-hidden", "true");
    pair.append(pair.upper, pair.lower, pair.bar);
    return pair;
  }

  function drawWord(node, word, mark) {
    node.dataset.missing = word ? "false" : "true";
    setText(node.text, word ? chipText(String(word[0] ?? "")) : " ");
    setText(node.p, word ? word[1] : "");
    setText(node.mark, word ? mark : "");
  }

  return follow(model, el, "lab-word-pairs", (state) => {
    const pairs = state.pairs ?? [];
    const start = state.start ?? 0;
    setAttr(list, "aria-label", state.label || "Two rows of tokens");
    setText(empty, state.empty || "No tokens yet.");
    empty.hidden = pairs.length > 0;
    keyed(list, pairs, (_pair, i) => start + i, makePair, (node, [upper, lower, same, weight, title, third, thirdSame], i) => {
      const index = start + i;
      node.dataset.index = index;
      const key = JSON.stringify([upper, lower, same, weight, title, third, thirdSame, state.rows]);
      if (node.labKey !== key) {
        node.labKey = key;
        drawWord(node.upper, upper, "");
        drawWord(node.lower, lower, same === false ? "≠" : "");
        node.dataset.same = same === null || same === undefined ? "" : String(same);
        if (state.rows === 3) node.bar.before(node.third);
        else node.third.remove();
        drawWord(node.third, third, thirdSame === false ? "≠" : "");
        node.dataset.third = thirdSame === null || thirdSame === undefined ? "" : String(thirdSame);
        node.bar.style.setProperty("--weight", typeof weight === "number" ? Math.min(1, Math.max(0, weight)) : 0);
        node.title = title ?? "";
        setAttr(node, "aria-label", title || `token ${index + 1}`);
      }
      setAttr(node, "aria-pressed", state.locked === index ? "true" : "false");
      node.classList.toggle("lab-selected", state.selected === index && state.locked !== index);
    });
    const nodes = [...list.children];
    if (nodes.length && !nodes.some((node) => node.tabIndex === 0)) nodes[0].tabIndex = 0;
  });
}

export default { render };
