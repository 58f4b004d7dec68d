// The token chips: the index of every picture. Hover links, click locks. Long texts fold their beginning.

const MARKS = { accepted: "✓", rejected: "✕", resampled: "↻", bonus: "+", plain: "○", unjudged: "?" };
const WORDS = { prompt: "prompt", new: "generated", newest: "newest", accepted: "accepted", rejected: "rejected", resampled: "resampled", bonus: "bonus", plain: "plain step", unjudged: "not judged" };
const LIMIT = 600;
const BLOCK = 100; // the fold moves in blocks, so that the lines stand still while tokens come

function chipTitle(token, index) {
  if (token.title) return token.title;
  const id = token.id === undefined ? "" : `, id ${token.id}`;
  return `token ${index}${id}, ${WORDS[token.kind] ?? "generated"}`;
}

function render({ model, el }) {
  const strip = make("div", "lab-strip");
  setAttr(strip, "role", "group");
  setAttr(strip, "aria-label", "Tokens");
  const fold = makeButton("lab-token lab-fold", "", () => {
    const first = Number(strip.dataset.first);
    expanded = !expanded;
    post(model, { type: "expand", expanded });
    draw(model.get("state") ?? {});
    if (expanded) chips.get(Math.max(0, first - 1))?.focus();
  });
  const empty = make("p", "lab-strip-empty", "No tokens yet.");
  el.replaceChildren(strip, empty);
  strip.append(fold);

  let expanded = false;
  let chips = new Map(); // absolute index -> chip
  let pinned = true; // at the newest line, until a visitor scrolls away from it
  let hovered = null;
  let current = null; // the chip in the tab order
  let following = null; // whether the newest line is kept in sight; else the strip opens at its top

  const indexOf = (target) => {
    const chip = target.closest?.("[data-index]");
    return chip && strip.contains(chip) ? Number(chip.dataset.index) : null;
  };
  const hover = (index) => {
    if (index === hovered) return;
    hovered = index;
    post(model, { type: "hover", index });
  };
  const lock = (index) => post(model, { type: "lock", index });
  const lockedNow = () => (model.get("state") ?? {}).locked ?? null;

  strip.addEventListener("pointerover", (event) => hover(indexOf(event.target)));
  strip.addEventListener("pointerleave", () => hover(null));
  strip.addEventListener("focusin", (event) => {
    const index = indexOf(event.target);
    if (index === null) return;
    makeCurrent(index);
    if (event.target.matches(":focus-visible")) hover(index);
  });
  strip.addEventListener("focusout", (event) => {
    if (!strip.contains(event.relatedTarget)) hover(null);
  });
  strip.addEventListener("scroll", () => { pinned = strip.scrollTop + strip.clientHeight >= strip.scrollHeight - 8; });
  strip.addEventListener("click", (event) => {
    const index = indexOf(event.target);
    if (index !== null) lock(lockedNow() === index ? null : index);
  });
  strip.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && lockedNow() !== null) return lock(null);
    const at = indexOf(event.target);
    if (at === null) return;
    const keys = [...chips.keys()];
    const place = keys.indexOf(at);
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: keys.length - 1 }[event.key] ?? rowStep(event.key, at, keys, place);
    if (to === null || to < 0 || to >= keys.length) return;
    event.preventDefault();
    chips.get(keys[to]).focus();
  });

  /** The chip above or below: the nearest of the next line. */
  function rowStep(key, at, keys, place) {
    const way = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (!way) return null;
    const from = chips.get(at);
    let best = null;
    let line = null;
    for (let i = place + way; i >= 0 && i < keys.length; i += way) {
      const chip = chips.get(keys[i]);
      if (Math.abs(chip.offsetTop - from.offsetTop) < 4) continue;
      line ??= chip.offsetTop;
      if (Math.abs(chip.offsetTop - line) >= 4) break;
      const away = Math.abs(chip.offsetLeft - from.offsetLeft);
      if (!best || away < best.away) best = { i, away };
    }
    return best?.i ?? null;
  }

  function makeCurrent(index) {
    if (current !== null && chips.has(current)) chips.get(current).tabIndex = -1;
    current = index;
    if (chips.has(index)) chips.get(index).tabIndex = 0;
  }

  function makeChip(index) {
    const chip = makeButton("lab-token", "");
    chip.dataset.index = index;
    chip.tabIndex = -1;
    chip.labMark = make("i");
    chip.labText = make("bdi");
    setAttr(chip.labMark, "aria-hidden", "true");
    chip.append(chip.labText);
    return chip;
  }

  function paintChip(chip, token, index, weight, state) {
    const key = `${token.kind}\u0000${token.text}\u0000${token.title ?? ""}\u0000${token.id ?? ""}`;
    if (chip.labKey !== key) {
      chip.labKey = key;
      const text = chipText(String(token.text ?? ""));
      setText(chip.labText, text);
      chip.dataset.kind = token.kind ?? "new";
      const mark = MARKS[token.kind];
      if (mark) {
        setText(chip.labMark, mark);
        chip.prepend(chip.labMark);
      } else chip.labMark.remove();
      const title = chipTitle(token, index);
      chip.title = title;
      setAttr(chip, "aria-label", `${text}, ${WORDS[token.kind] ?? "generated"}, token ${index}`);
    }
    const shade = typeof weight === "number" ? Math.min(1, Math.max(0, weight)).toFixed(3) : "";
    if (chip.labShade !== shade) {
      chip.labShade = shade;
      chip.classList.toggle("lab-weighted", shade !== "");
      chip.style.setProperty("--weight", shade === "" ? null : shade);
    }
    const locked = state.locked === index;
    setAttr(chip, "aria-pressed", locked ? "true" : "false");
    chip.classList.toggle("lab-selected", state.selected === index && !locked);
  }

  function draw(state) {
    const tokens = state.tokens ?? [];
    const weights = state.weights ?? null;
    const start = state.start ?? 0;
    const total = start + tokens.length;
    const limit = state.limit ?? LIMIT;
    const least = total > limit ? Math.ceil((total - limit) / BLOCK) * BLOCK : 0;
    const first = expanded ? start : Math.max(start, least);
    strip.dataset.first = first;
    const next = new Map();
    for (let index = first; index < total; index += 1) next.set(index, chips.get(index) ?? makeChip(index));
    for (const [index, chip] of chips) if (!next.has(index)) chip.remove();
    let place = fold.nextSibling;
    for (const [index, chip] of next) {
      if (chip === place) place = place.nextSibling;
      else if (chip.parentNode !== strip || chip !== place) strip.insertBefore(chip, place);
      paintChip(chip, tokens[index - start], index, weights?.[index - start], state);
    }
    chips = next;
    if (current === null || !chips.has(current)) makeCurrent(total ? total - 1 : null);
    fold.hidden = first === 0 && !(expanded && least > 0);
    const count = first.toLocaleString("en-GB");
    setText(fold, first === 0 ? "fold the earlier tokens" : `… ${count} earlier token${first === 1 ? "" : "s"}`);
    setAttr(fold, "aria-expanded", expanded ? "true" : "false");
    empty.hidden = total > 0;
    const follows = state.follow !== false;
    if (follows !== following) {
      if (!follows && pinned) requestAnimationFrame(() => { strip.scrollTop = 0; });
      pinned = follows;
      following = follows;
    }
    if (follows && pinned) requestAnimationFrame(() => { strip.scrollTop = strip.scrollHeight; });
    setText(empty, state.empty || "No tokens yet.");
  }

  return follow(model, el, "lab-token-strip", draw);
}

export default { render };
