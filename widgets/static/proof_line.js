// Whether the run is what it claims to be: a symbol, words, and the figures behind them.

const SYMBOLS = { pending: "…", equal: "✓", tie: "≈", different: "✕", unproven: "–" };
const NAMES = { pending: "being checked", equal: "proven equal", tie: "equal up to a tie", different: "different", unproven: "unproven" };

function render({ model, el }) {
  const line = make("div", "lab-proof-line");
  const symbol = make("span", "lab-proof-symbol");
  setAttr(symbol, "role", "img");
  const text = make("p", "lab-proof-text");
  const spoken = make("p", "lab-hidden");
  setAttr(spoken, "role", "status");
  let said = "none";
  const cancel = makeButton("lab-small", "Stop the check", () => post(model, { type: "cancel" }));
  const details = make("details", "lab-proof-details");
  const table = make("table");
  setAttr(table, "aria-label", "Figures of the proof");
  const body = make("tbody");
  table.append(body);
  details.append(make("summary", "", "Figures of the proof"), table);
  line.append(symbol, text, cancel);
  el.replaceChildren(line, details, spoken);
  return follow(model, el, "lab-proof", (state) => {
    const verdict = state.verdict in SYMBOLS ? state.verdict : "none";
    el.dataset.verdict = verdict;
    symbol.hidden = verdict === "none";
    setText(symbol, SYMBOLS[verdict] ?? "");
    setAttr(symbol, "aria-label", NAMES[verdict] ?? "no proof");
    setRich(text, state.text ?? "");
    if (verdict !== said) setText(spoken, text.textContent); // the count of a pending check is not read out
    said = verdict;
    cancel.hidden = !(verdict === "pending" && state.can_cancel);
    const rows = state.detail ?? [];
    details.hidden = rows.length === 0;
    keyed(body, rows, (_row, i) => i, () => {
      const row = make("tr");
      const head = make("th");
      head.scope = "row";
      row.append(head, make("td"));
      return row;
    }, (node, [name, value]) => {
      setText(node.firstChild, name);
      setText(node.lastChild, value);
    });
  });
}

export default { render };
