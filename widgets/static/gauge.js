// A probability from 0 to 1 and the draw compared with it: {accept, u, accept_text, u_text, label}.

function render({ model, el }) {
  const box = make("div", "lab-gauge-box");
  setAttr(box, "role", "img");
  const above = make("span", "lab-gauge-above");
  const track = make("div", "lab-gauge-track");
  const fill = make("span", "lab-gauge-fill");
  const needle = make("span", "lab-gauge-needle");
  const below = make("span", "lab-gauge-below");
  const zero = make("span", "lab-gauge-end", "0");
  const one = make("span", "lab-gauge-end lab-gauge-one", "1");
  track.append(fill, needle);
  box.append(above, track, zero, below, one);
  el.replaceChildren(box);

  const place = (node, share) => {
    node.style.left = `${(share * 100).toFixed(2)}%`;
    node.style.transform = `translateX(${share < 0.14 ? "-4px" : share > 0.86 ? "calc(-100% + 4px)" : "-50%"})`;
  };
  return follow(model, el, "lab-gauge", (state) => {
    const shown = typeof state.accept === "number" && typeof state.u === "number";
    box.hidden = !shown;
    if (!shown) return;
    const accept = Math.max(0, Math.min(1, state.accept));
    setAttr(box, "aria-label", state.label);
    box.dataset.outcome = state.u < state.accept ? "accepted" : "rejected";
    fill.style.width = `${(accept * 100).toFixed(2)}%`;
    needle.style.left = `${(Math.max(0, Math.min(1, state.u)) * 100).toFixed(2)}%`;
    setText(above, `accepted below ${state.accept_text}`);
    place(above, accept);
    setText(below, `${box.dataset.outcome === "accepted" ? "✓" : "✕"} the draw: ${state.u_text}`);
    place(below, Math.max(0, Math.min(1, state.u)));
    zero.hidden = state.u < 0.2;
    one.hidden = state.u > 0.8;
  });
}

export default { render };
