// The questions of the index page: an answer is marked, the recorded run's figure opens, and both are kept for the
// visitor's next look at the page. Everything else of it works without a script.

const KEPT = "lab-path";

function readKept() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return kept && typeof kept === "object" ? kept : {};
  } catch {
    return {};
  }
}

function keep(answers) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(answers));
  } catch {
    // private windows may refuse; the answers then last as long as the page
  }
}

/** A number as people type it: "2.59", "2,59", " 2.59 MiB"; null where there is none. */
function readNumber(text) {
  const match = String(text).trim().replace(",", ".").match(/^[+-]?(\d+\.?\d*|\.\d+)/);
  return match ? Number(match[0]) : null;
}

/** Bring the questions below `root` to life, in the words that the page brought; gives back what ends it. */
function attachFront(root) {
  const answers = readKept();
  const said = JSON.parse((root.dataset.words ? root : root.querySelector("[data-words]"))?.dataset.words ?? "{}");
  const asked = [...root.querySelectorAll("[data-ask]")];
  const count = root.querySelector(".lab-path-count");
  const again = makeButton("lab-quiet", said.start_over, () => {
    for (const box of asked) clear(box);
    keep({});
    tally();
    root.querySelector("[data-ask] button, [data-ask] input")?.focus();
  });
  const words = make("span");
  count?.append(words, again);

  function tally() {
    const done = asked.filter((box) => box.dataset.said);
    const right = done.filter((box) => box.dataset.said === "right").length;
    setText(words, done.length ? `${fill(said.count, { done: done.length, all: asked.length, right })} ` : "");
    again.hidden = done.length === 0;
  }

  function say(box, right, text) {
    box.dataset.said = right ? "right" : "wrong";
    const checked = box.querySelector(".lab-checked");
    // With its badge; the same figure among what can be opened is then not shown again.
    checked.replaceChildren(
      make("span", "", `${right ? "✓" : "✕"} ${fill(right ? said.right : said.wrong, { figure: box.dataset.figure })}`),
      " ",
      box.querySelector(".lab-told-figure .lab-badge").cloneNode(true),
    );
    box.querySelector(".lab-told").open = true;
    answers[box.dataset.ask] = text;
  }

  function clear(box) {
    delete box.dataset.said;
    delete answers[box.dataset.ask];
    setText(box.querySelector(".lab-checked"), "");
    box.querySelector(".lab-told").open = false;
    for (const button of box.querySelectorAll(".lab-chips button")) {
      setAttr(button, "aria-pressed", "false");
      delete button.dataset.mark;
    }
    const field = box.querySelector("input");
    if (field) field.value = "";
  }

  function choose(box, button) {
    const right = button.hasAttribute("data-right");
    for (const other of box.querySelectorAll(".lab-chips button")) {
      const mine = other === button;
      setAttr(other, "aria-pressed", String(mine));
      other.dataset.mark = other.hasAttribute("data-right") ? "right" : mine ? "wrong" : "";
    }
    say(box, right, button.textContent);
  }

  function guess(box, form) {
    const field = form.querySelector("input");
    const number = readNumber(field.value);
    if (number === null || !Number.isFinite(number)) {
      setText(box.querySelector(".lab-checked"), said.no_number);
      field.focus();
      return;
    }
    const value = Number(form.dataset.value);
    say(box, Math.abs(number - value) <= Number(form.dataset.near) * Math.abs(value), field.value);
  }

  for (const box of asked) {
    const form = box.querySelector("form");
    const buttons = [...box.querySelectorAll(".lab-chips button")];
    form?.addEventListener("submit", (event) => {
      event.preventDefault();
      guess(box, form);
      keep(answers);
      tally();
    });
    for (const button of buttons) {
      button.addEventListener("click", () => {
        choose(box, button);
        keep(answers);
        tally();
      });
    }
    const before = answers[box.dataset.ask];
    if (typeof before !== "string") continue;
    const same = buttons.find((button) => button.textContent === before);
    if (same) choose(box, same);
    else if (form && readNumber(before) !== null) {
      form.querySelector("input").value = before;
      guess(box, form);
    }
  }
  tally();
  return () => root.replaceChildren();
}
