// Rounds as rows: {rounds, total, expanded, most_ms, selected, locked, empty}. See round_rows.py.

const ROUND_MARKS = { accepted: "✓", rejected: "✕", resampled: "↻", bonus: "+", plain: "○", unjudged: "?" };
const ROUND_WORDS = { accepted: "accepted", rejected: "rejected", resampled: "put in instead", bonus: "bonus", plain: "plain step, nothing was proposed", unjudged: "never judged" };
const PARTS = ["draft", "verify", "judge"];
const CELLS = 20; // positions drawn one by one; more are drawn to scale

function render({ model, el }) {
  const list = make("ol", "lab-rounds");
  setAttr(list, "aria-label", "Rounds, the newest first");
  const key = make("p", "lab-rounds-key");
  for (const part of PARTS) {
    const item = make("span", "", part);
    item.prepend(make("i", `lab-rounds-${part}`));
    key.append(item);
  }
  const tick = make("span", "", "plain decoding, for as many tokens");
  tick.prepend(make("i", "lab-rounds-tick-key"));
  const kept = make("span", "", "kept in the cache");
  kept.prepend(make("i", "lab-cell lab-cell-kept"));
  const cut = make("span", "", "cropped");
  cut.prepend(make("i", "lab-cell"));
  key.append(tick, kept, cut);
  const fold = makeButton("lab-small", "", () => post(model, { type: "expand", expanded: !(model.get("state") ?? {}).expanded }));
  const empty = make("p", "lab-rounds-empty");
  el.replaceChildren(key, list, fold, empty);
  offerPicture(el, list, "rounds");

  const spotOf = (target) => {
    const node = target.closest?.("[data-row]");
    return node && list.contains(node) ? { round: Number(node.dataset.round), row: Number(node.dataset.row) } : null;
  };
  let hovered = "";
  const hover = (spot) => {
    const name = spot ? `${spot.round}.${spot.row}` : "";
    if (name === hovered) return;
    hovered = name;
    post(model, { type: "hover", ...(spot ?? { round: null, row: null }) });
  };
  const isLocked = (spot) => {
    const locked = (model.get("state") ?? {}).locked;
    return Boolean(locked && spot && locked[0] === spot.round && locked[1] === spot.row);
  };
  list.addEventListener("pointerover", (event) => hover(spotOf(event.target)));
  list.addEventListener("pointerleave", () => hover(null));
  list.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && hover(spotOf(event.target)));
  list.addEventListener("focusout", (event) => {
    if (!list.contains(event.relatedTarget)) hover(null);
  });
  list.addEventListener("click", (event) => {
    const spot = spotOf(event.target);
    if (spot) post(model, { type: "lock", ...(isLocked(spot) ? { round: null, row: null } : spot) });
  });
  list.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && (model.get("state") ?? {}).locked) post(model, { type: "lock", round: null, row: null });
  });
  rove(list, () => [...list.querySelectorAll("button.lab-guess")]);

  function makeRound() {
    const row = make("li", "lab-round");
    row.number = make("span", "lab-round-number");
    row.guesses = make("div", "lab-round-guesses");
    row.source = make("span", "lab-round-source");
    row.side = make("div", "lab-round-side");
    row.time = make("div", "lab-round-time");
    setAttr(row.time, "role", "img");
    row.bar = make("span", "lab-round-bar");
    row.parts = PARTS.map((part) => make("i", `lab-rounds-${part}`));
    row.tick = make("i", "lab-round-tick");
    row.ms = make("span", "lab-round-ms");
    row.bar.append(...row.parts, row.tick);
    row.time.append(row.bar, row.ms);
    row.caches = make("div", "lab-round-caches");
    row.side.append(row.time, row.caches);
    row.append(row.number, row.guesses, row.side);
    return row;
  }

  function makeGuess(token) {
    const chip = makeButton("lab-guess", "");
    chip.tabIndex = -1;
    chip.labMark = make("i");
    setAttr(chip.labMark, "aria-hidden", "true");
    chip.labText = make("bdi");
    chip.append(chip.labMark, chip.labText);
    chip.dataset.row = token.row;
    return chip;
  }

  function drawCache(node, [name, before, most, after]) {
    const words = `${name} cache: ${before} positions before, ${most} with the proposals, ${after} after cropping`;
    if (node.labKey === words) return;
    node.labKey = words;
    setAttr(node, "role", "img");
    setAttr(node, "aria-label", words);
    node.title = words;
    const cells = make("span", "lab-round-cells");
    const count = Math.max(0, most - before);
    const kept = Math.max(0, Math.min(count, after - before));
    const drawn = Math.min(count, CELLS);
    cells.classList.toggle("lab-many", drawn > 8);
    const bound = count > CELLS ? Math.round((kept / count) * CELLS) : kept;
    for (let i = 0; i < drawn; i += 1) cells.append(make("i", i < bound ? "lab-cell lab-cell-kept" : "lab-cell"));
    node.replaceChildren(make("span", "lab-round-cache-name", name), make("span", "", String(before)), cells, make("span", "", `→ ${after}`));
  }

  function drawRound(row, round, state) {
    setText(row.number, round.index + 1);
    setAttr(row, "aria-label", `Round ${round.index + 1}`);
    const own = round.tokens.filter((t) => ["resampled", "bonus", "plain"].includes(t.kind));
    const parts = [...round.tokens.filter((t) => !own.includes(t)), ...(own.length ? ["arrow", ...own] : []), ...(round.source ? ["source"] : [])];
    keyed(row.guesses, parts, (t) => (typeof t === "string" ? t : t.row), (t) => {
      if (t === "arrow") {
        const arrow = make("span", "lab-round-arrow", "→");
        setAttr(arrow, "aria-hidden", "true");
        return arrow;
      }
      return t === "source" ? make("span", "lab-round-source") : makeGuess(t);
    }, (node, t) => {
      if (t === "source") setText(node, round.source);
      if (typeof t === "string") return;
      node.dataset.round = round.index;
      node.dataset.kind = t.kind;
      setText(node.labMark, ROUND_MARKS[t.kind] ?? "");
      setText(node.labText, t.text);
      node.title = t.title ?? "";
      setAttr(node, "aria-label", `${t.text}, ${ROUND_WORDS[t.kind] ?? ""}, round ${round.index + 1}`);
      const at = [round.index, t.row];
      const same = (spot) => Boolean(spot && spot[0] === at[0] && spot[1] === at[1]);
      setAttr(node, "aria-pressed", same(state.locked) ? "true" : "false");
      node.classList.toggle("lab-selected", same(state.selected) && !same(state.locked));
    });
    const sum = round.ms.reduce((a, b) => a + (b ?? 0), 0);
    const most = state.most_ms || sum || 1;
    const width = (ms) => `${(Math.min(1, (ms ?? 0) / most) * 100).toFixed(2)}%`;
    row.parts.forEach((node, i) => { node.style.width = width(round.ms[i]); });
    row.tick.hidden = typeof round.plain_ms !== "number";
    row.tick.style.left = width(round.plain_ms);
    setText(row.ms, `${sum < 9.95 ? sum.toFixed(1) : Math.round(sum).toLocaleString("en-GB")} ms`);
    setAttr(row.time, "aria-label", round.ms_title);
    row.time.title = round.ms_title ?? "";
    keyed(row.caches, round.caches ?? [], (cache) => cache[0], () => make("span", "lab-round-cache"), drawCache);
  }

  return follow(model, el, "lab-round-rows", (state) => {
    const rounds = state.rounds ?? [];
    keyed(list, rounds, (round) => round.index, makeRound, (row, round) => drawRound(row, round, state));
    const chips = [...list.querySelectorAll("button.lab-guess")];
    if (chips.length && !chips.some((chip) => chip.tabIndex === 0)) chips[0].tabIndex = 0;
    list.classList.toggle("lab-rounds-all", Boolean(state.expanded));
    key.hidden = rounds.length === 0;
    const more = (state.total ?? 0) - rounds.length;
    fold.hidden = more <= 0 && !state.expanded;
    setText(fold, state.expanded ? "Fold the earlier rounds" : `Show all ${(state.total ?? 0).toLocaleString("en-GB")} rounds`);
    setAttr(fold, "aria-expanded", state.expanded ? "true" : "false");
    setText(empty, state.empty || "No round yet.");
    empty.hidden = rounds.length > 0;
  });
}

export default { render };
