// Step, play, scrub. `step` is the index of what is shown, 0 the first; `available` of `total` are there.
// Playback waits where the data ends; only Python moves that end.

const RATE = 8; // steps a second

function render({ model, el }) {
  const bar = make("div", "lab-player-bar");
  setAttr(bar, "role", "toolbar");
  setAttr(bar, "aria-label", "Steps of the run");
  const back = makeButton("lab-player-button", "", () => go(step - 1));
  const play = makeButton("lab-player-button lab-player-play", "", () => setPlaying(!playing));
  const next = makeButton("lab-player-button", "", () => go(step + 1));
  back.append(icon("M11 3 5 8l6 5zM3 3h2v10H3z"));
  const playIcon = icon("");
  play.append(playIcon);
  next.append(icon("m5 3 6 5-6 5zM11 3h2v10h-2z"));
  setAttr(back, "aria-label", "One step back");
  setAttr(next, "aria-label", "One step forward");
  const scrub = make("input", "lab-player-scrub");
  scrub.type = "range";
  scrub.min = 0;
  scrub.step = 1;
  const label = make("span", "lab-player-label");
  bar.append(back, play, next, scrub, label);
  el.replaceChildren(bar);

  let step = 0;
  let playing = false;
  let seenStep;
  let seenPlaying;
  let timer = 0;
  const echo = makeEcho();
  const facts = () => {
    const state = model.get("state") ?? {};
    const available = Math.max(0, state.available ?? 0);
    return { ...state, available, total: Math.max(available, state.total ?? 0) };
  };

  function icon(path) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const shape = document.createElementNS(space, "path");
    shape.setAttribute("d", path);
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    svg.append(shape);
    return svg;
  }

  function go(to, keepPlaying = false) {
    const { available } = facts();
    const target = Math.max(0, Math.min(available - 1, to));
    if (!keepPlaying && playing) setPlaying(false);
    if (target !== step) {
      step = target;
      echo.send(step);
      post(model, { type: "step", step, following: step === available - 1 });
    }
    paint();
  }

  function setPlaying(on) {
    const { available, total } = facts();
    if (on && step >= total - 1) go(0);
    playing = on && available > 0;
    post(model, { type: "play", playing });
    run();
    paint();
  }

  function run() {
    clearInterval(timer);
    timer = 0;
    if (!playing) return;
    timer = setInterval(() => {
      const { available, total } = facts();
      if (step < available - 1) go(step + 1, true);
      if (step >= total - 1) setPlaying(false);
    }, 1000 / (facts().rate || RATE));
  }

  function paint() {
    const { available, total, unit } = facts();
    scrub.max = Math.max(0, total - 1);
    scrub.value = step;
    const share = (value) => `${total > 1 ? ((value / (total - 1)) * 100).toFixed(2) : 0}%`;
    scrub.style.setProperty("--fill", share(step));
    scrub.style.setProperty("--ready", share(Math.max(0, available - 1)));
    const waiting = playing && step >= available - 1 && available < total;
    const words = `${unit || "step"} ${available ? step + 1 : 0} of ${total}${waiting ? " · waiting for the run" : ""}`;
    setText(label, words);
    setAttr(scrub, "aria-valuetext", words);
    setAttr(scrub, "aria-label", "Step");
    playIcon.firstChild.setAttribute("d", playing ? "M4 3h3v10H4zM9 3h3v10H9z" : "m4 2 9 6-9 6z");
    setAttr(play, "aria-label", playing ? "Pause" : "Play");
    play.title = playing ? "Pause (space)" : "Play (space)";
    const idle = total === 0;
    play.disabled = idle;
    scrub.disabled = idle;
    setAttr(back, "aria-disabled", step <= 0 ? "true" : null);
    setAttr(next, "aria-disabled", step >= available - 1 ? "true" : null);
  }

  scrub.addEventListener("input", () => go(Number(scrub.value)));
  bar.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { available } = facts();
    const to = { ArrowLeft: step - 1, ArrowRight: step + 1, ArrowDown: step - 1, ArrowUp: step + 1, Home: 0, End: available - 1, PageDown: step - 10, PageUp: step + 10 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      go(to);
    } else if (event.key === " " && event.target === scrub) {
      event.preventDefault();
      setPlaying(!playing);
    }
  });

  const stop = follow(model, el, "lab-player lab-needs-kernel", (state) => {
    const { available } = facts();
    if (state.step !== seenStep) {
      seenStep = state.step;
      if (typeof state.step === "number" && !echo.isEcho(state.step)) step = state.step;
    }
    if (state.following && !playing) step = available - 1;
    step = Math.max(0, Math.min(step, available - 1));
    if (state.playing !== seenPlaying) {
      seenPlaying = state.playing;
      if (Boolean(state.playing) !== playing) {
        playing = Boolean(state.playing);
        run();
      }
    }
    paint();
  });
  return () => {
    stop();
    clearInterval(timer);
  };
}

export default { render };
