// What the page shows: a live run or a recorded one, and which model.

function render({ model, el }) {
  const mode = make("span", "lab-mode");
  const dot = make("i", "lab-mode-dot");
  const word = make("span");
  mode.append(dot, word);
  const line = make("span", "lab-mode-model");
  el.replaceChildren(mode, line);
  return follow(model, el, "lab-badges", (state) => {
    const recorded = state.mode === "recorded";
    mode.hidden = !["live", "recorded"].includes(state.mode);
    mode.dataset.mode = state.mode ?? "";
    setText(word, recorded ? `RECORDED ${state.recorded ?? ""}`.trim() : "LIVE");
    mode.title = recorded ? "A run recorded earlier; the numbers are that run's." : "This run happens now, on this machine.";
    setText(line, state.model);
  });
}

export default { render };
