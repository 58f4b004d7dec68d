// Run, Stop, a thin bar and one line that says how far it is.

const WORDS = {
  idle: "", queued: "waiting", loading: "loading the model", running: "running", stopping: "stopping",
  done: "finished", failed: "failed", stopped: "stopped",
};
const BUSY = ["queued", "loading", "running", "stopping"];
const ANNOUNCE_MS = 5000;

function render({ model, el }) {
  const buttons = make("div", "lab-run-buttons");
  const run = makeButton("lab-primary", "Run", () => post(model, { type: "run" }));
  const stopButton = makeButton("", "Stop", () => post(model, { type: "stop" }));
  buttons.append(run, stopButton);
  const bar = make("div", "lab-bar");
  setAttr(bar, "role", "progressbar");
  setAttr(bar, "aria-label", "Progress of the run");
  setAttr(bar, "aria-valuemin", 0);
  setAttr(bar, "aria-valuemax", 100);
  const fill = make("div", "lab-bar-fill");
  bar.append(fill);
  const note = make("p", "lab-run-note");
  const spoken = make("p", "lab-hidden");
  setAttr(spoken, "aria-live", "polite");
  el.replaceChildren(buttons, bar, note, spoken);

  let timer = 0;
  let saidAt = -Infinity;
  let saidPhase = "idle";
  const say = () => {
    timer = 0;
    saidAt = performance.now();
    setText(spoken, note.textContent);
  };

  const stop = follow(model, el, "lab-runner lab-needs-kernel", (state) => {
    const phase = state.phase in WORDS ? state.phase : "idle";
    const busy = BUSY.includes(phase);
    const atStop = document.activeElement === stopButton;
    run.disabled = state.can_run === false; // while a run lives, Run begins it anew
    stopButton.disabled = !busy || phase === "stopping";
    if (atStop && stopButton.disabled && !run.disabled) run.focus();
    const known = typeof state.fraction === "number";
    const share = phase === "done" ? 1 : known ? Math.min(1, Math.max(0, state.fraction)) : 0;
    bar.dataset.phase = phase;
    bar.classList.toggle("lab-bar-unknown", busy && !known);
    fill.style.width = `${(share * 100).toFixed(1)}%`;
    setAttr(bar, "aria-valuenow", busy && !known ? null : Math.round(share * 100));
    setText(note, state.note || WORDS[phase]);
    setAttr(bar, "aria-valuetext", note.textContent || null);
    // A change of phase is said at once, the count of tokens only now and then.
    if (phase !== saidPhase) {
      saidPhase = phase;
      clearTimeout(timer);
      say();
    } else if (!timer && spoken.textContent !== note.textContent) {
      timer = setTimeout(say, Math.max(0, saidAt + ANNOUNCE_MS - performance.now()));
    }
  });
  return () => {
    stop();
    clearTimeout(timer);
  };
}

export default { render };
