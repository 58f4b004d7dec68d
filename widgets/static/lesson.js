// The lesson beside the picture: words, formulas, a worked table, a question to answer before looking, presets to start.

function render({ model, el }) {
  const panel = make("section", "lab-lesson-panel");
  panel.tabIndex = -1; // the link near the title leads here
  const body = make("div", "lab-lesson-body");
  body.id = makeId();
  const fold = makeButton("lab-quiet lab-lesson-fold", "", () => {
    const folded = !isFolded();
    local = { folded, from: Boolean((model.get("state") ?? {}).folded) };
    post(model, { type: "fold", folded });
    draw(model.get("state") ?? {});
  });
  setAttr(fold, "aria-controls", body.id);
  panel.append(fold, body);
  el.replaceChildren(panel);
  let local = null; // folded here, until Python says something new
  const chosen = new Map();
  const words = () => (model.get("state") ?? {}).words ?? {};
  const isFolded = () => (local ? local.folded : Boolean((model.get("state") ?? {}).folded));

  function makeSection() {
    const node = make("div", "lab-lesson-section");
    node.parts = {
      title: make("h2", "lab-lesson-title"), text: make("div", "lab-lesson-text"), math: make("div", "lab-lesson-formulas"),
      table: make("table"), question: make("div", "lab-lesson-question"), tries: make("ul", "lab-lesson-tries lab-needs-kernel"),
    };
    const { question, table } = node.parts;
    node.elsewhere = make("p", "lab-lesson-inert");
    table.head = make("tr");
    table.rowsBox = make("tbody");
    const head = make("thead");
    head.append(table.head);
    table.append(head, table.rowsBox);
    node.scroll = make("div", "lab-lesson-scroll");
    node.scroll.append(table);
    question.words = make("p");
    question.choices = make("div", "lab-chips");
    question.reply = make("p", "lab-lesson-reply");
    setAttr(question.choices, "role", "group");
    setAttr(question.reply, "role", "status");
    question.append(question.words, question.choices, question.reply);
    node.append(node.parts.title, node.parts.text, node.parts.math, node.scroll, question, node.parts.tries, node.elsewhere);
    return node;
  }

  function drawQuestion(box, question, at, title) {
    box.hidden = !question;
    if (!question) return;
    setRich(box.words, question.text);
    box.words.hidden = !question.text;
    setAttr(box.choices, "aria-label", question.text || title || words().choices);
    const key = `${at}:${question.text ?? ""}:${(question.choices ?? []).join()}`;
    const choice = question.chosen ?? chosen.get(key) ?? null;
    const answer = question.answer ?? null;
    keyed(box.choices, question.choices ?? [], (_text, i) => i, (_text, i) => makeButton("", "", () => {
      chosen.set(key, i);
      post(model, { type: "answer", section: at, choice: i });
      draw(model.get("state") ?? {});
    }), (node, text, i) => {
      const mark = choice === null || answer === null ? "" : i === answer ? "✓ " : i === choice ? "✕ " : "";
      setText(node, mark + text);
      setAttr(node, "aria-pressed", i === choice ? "true" : "false");
      node.dataset.mark = { "✓ ": "right", "✕ ": "wrong" }[mark] ?? "";
    });
    setRich(box.reply, choice === null ? "" : question.reply);
    box.reply.hidden = choice === null || !question.reply;
  }

  /** Presets: a button each, and what to look at; without a lab the words alone. */
  function drawTries(node, tries) {
    const starts = (model.get("state") ?? {}).starts !== false;
    node.parts.tries.hidden = tries.length === 0;
    node.elsewhere.hidden = starts || tries.length === 0;
    setText(node.elsewhere, words().try_elsewhere);
    keyed(node.parts.tries, tries, (item) => item.preset, (item) => {
      const row = make("li");
      row.button = makeButton("", "", () => post(model, { type: "try", preset: item.preset }));
      row.note = make("p");
      row.append(row.button, row.note);
      return row;
    }, (row, item) => {
      setText(row.button, item.label);
      row.button.disabled = !starts;
      setRich(row.note, item.note);
    });
  }

  function drawSection(node, section, at) {
    const { title, text, math, table, question } = node.parts;
    setText(title, section.title);
    title.hidden = !section.title;
    keyed(text, section.paragraphs ?? [], (_t, i) => i, () => make("p"), (p, words) => setRich(p, words));
    const formulas = [section.math ?? []].flat().filter(Boolean);
    keyed(math, formulas, (_t, i) => i, () => make("div", "lab-math"), setText);
    const rows = section.table?.rows ?? [];
    node.scroll.hidden = rows.length === 0;
    setAttr(table, "aria-label", section.title || words().worked);
    const cells = (row, list, tag) => keyed(row, list, (_c, i) => i, () => make(tag), setRich);
    cells(table.head, section.table?.head ?? [], "th");
    keyed(table.rowsBox, rows, (_r, i) => i, () => make("tr"), (row, list) => cells(row, list, "td"));
    drawQuestion(question, section.question, at, section.title);
    drawTries(node, section.tries ?? []);
  }

  function draw(state) {
    if (local && Boolean(state.folded) !== local.from) local = null;
    const folded = isFolded();
    el.classList.toggle("lab-lesson-folded", folded);
    body.hidden = folded;
    setAttr(panel, "aria-label", words().panel);
    setText(fold, folded ? words().show : words().fold);
    setAttr(fold, "aria-label", folded ? words().show_label : words().fold_label);
    setAttr(fold, "aria-expanded", folded ? "false" : "true");
    keyed(body, state.sections ?? [], (_section, i) => i, makeSection, drawSection);
  }

  return follow(model, el, "lab-lesson", draw);
}

export default { render };
