// The header's line: a live run or a recorded one, which model, and whether somebody still answers. A kernel that ended is not told to its page: Jupyter starts an empty one in its
// place, whose silence looks like work. So the page asks, and says within ten seconds that nobody is there.

const PING_MS = 1500;
const DEAD_MS = 6000;
const FIRST_MS = 120000; // until the first answer the kernel is still running the page's own cells

function render({ model, el }) {
  const banner = make("div", "lab-heartbeat-banner");
  setAttr(banner, "role", "alert");
  banner.popover = "manual"; // in the top layer: Jupyter's containers would hold a fixed box
  const symbol = make("span", "lab-heartbeat-symbol", "!");
  setAttr(symbol, "aria-hidden", "true");
  const words = make("p", "lab-heartbeat-words");
  const reload = makeButton("lab-small", "", () => location.reload());
  banner.append(symbol, words, reload);
  const mode = make("span", "lab-mode");
  const word = make("span");
  mode.append(make("i", "lab-mode-dot"), word);
  const line = make("span", "lab-mode-model");
  const badge = make("div", "lab-mode-line");
  badge.append(mode, line);
  el.replaceChildren(badge, banner);

  const pace = { ping: PING_MS, dead: DEAD_MS, first: FIRST_MS, ...((model.get("state") ?? {}).pace ?? {}) };
  let number = 0;
  let oldest = null; // when the oldest question that nobody answered was asked
  let answered = false;
  let silent = false;

  const page = () => el.closest(".lab-page") ?? document.body;
  const paint = () => {
    const state = model.get("state") ?? {};
    const said = state.words ?? {};
    const text = silent ? state.ended || said.kernel_ended : "";
    setText(reload, said.reload);
    setText(words, text);
    if (banner.isConnected && banner.matches(":popover-open") !== Boolean(text)) banner.togglePopover();
    const recorded = state.mode === "recorded";
    mode.hidden = !["live", "recorded"].includes(state.mode);
    mode.dataset.mode = state.mode ?? "";
    setText(word, recorded ? `${said.recorded} ${state.when ?? ""}`.trim() : said.live);
    mode.title = recorded ? said.recorded_is : said.live_is;
    setText(line, state.model);
    page().classList.toggle("lab-dead", silent);
    for (const part of page().querySelectorAll(".lab-needs-kernel")) part.inert = silent;
  };

  const ask = () => {
    number += 1;
    oldest ??= performance.now();
    post(model, { type: "ping", n: number });
  };
  const check = () => {
    const late = oldest !== null && performance.now() - oldest > (answered ? pace.dead : pace.first);
    if (late !== silent) {
      silent = late;
      paint();
    } else if (silent || words.textContent) paint(); // widgets that came later
  };
  const hear = (message) => {
    if (message?.type !== "pong") return;
    answered = true;
    oldest = null;
    check();
  };

  model.on("msg:custom", hear);
  const stop = follow(model, el, "lab-heartbeat", paint);
  ask();
  const pings = setInterval(ask, pace.ping);
  const checks = setInterval(check, Math.min(500, pace.dead / 4));
  return () => {
    clearInterval(pings);
    clearInterval(checks);
    model.off("msg:custom", hear);
    stop();
  };
}

export default { render };
