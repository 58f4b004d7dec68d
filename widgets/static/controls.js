// The form of an experiment, drawn from its JSON schema.

const GROUP_TITLES = { compare: "Compare", break: "Break it" };

function sameValue(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

function render({ model, el }) {
  const values = {}; // what the form shows
  const local = {}; // errors found here, by field
  const echoes = {};
  const editors = new Map();
  const timers = new Map();
  const waiting = new Set();
  let seen = {};
  let schemaKey = "";
  let fields = [];
  let modelId = "";

  const root = make("div", "lab-controls-root");
  const chips = make("div", "lab-chips lab-presets");
  setAttr(chips, "role", "group");
  const modelRow = make("div", "lab-field");
  const modelSelect = make("select", "lab-input lab-select");
  modelSelect.id = makeId();
  const modelLabel = make("label", "lab-label", "Model");
  modelLabel.htmlFor = modelSelect.id;
  modelRow.append(modelLabel, modelSelect);
  modelSelect.addEventListener("change", () => {
    modelId = modelSelect.value;
    post(model, { type: "model", id: modelId });
  });
  el.replaceChildren(root);

  // A list in `when` names several values, any of which will do.
  const agrees = (value, wanted) =>
    Array.isArray(wanted) ? wanted.some((one) => sameValue(value, one)) : sameValue(value, wanted);
  const holds = (field) => Object.entries(field.when ?? {}).every(([name, wanted]) => agrees(values[name], wanted));

  const flush = () => {
    const changed = {};
    for (const name of waiting) {
      clearTimeout(timers.get(name));
      if (local[name]) continue;
      changed[name] = values[name];
      echoes[name].send(values[name]);
    }
    waiting.clear();
    const invalid = fields.filter((field) => local[field.name] && holds(field)).map((field) => field.name);
    post(model, { type: "values", values: { ...values }, changed, invalid });
  };

  const edit = (name) => (value, error, wait) => {
    const old = local[name] ?? "";
    local[name] = error;
    if (value === undefined || sameValue(value, values[name])) {
      if (old === error && !(waiting.has(name) && wait === 0)) return;
    } else if (!error) values[name] = value;
    waiting.add(name);
    clearTimeout(timers.get(name));
    if (wait) timers.set(name, setTimeout(flush, wait));
    else flush();
    paint();
  };

  function build(schema, groups) {
    editors.clear();
    fields = Object.entries(schema?.properties ?? {}).map(([name, raw]) => describeField(name, raw, schema));
    const boxes = new Map();
    const boxOf = (group) => {
      const home = group in GROUP_TITLES ? group : "main";
      if (!boxes.has(home)) {
        const box = make(home === "main" ? "div" : "details", `lab-group lab-group-${home}`);
        if (home !== "main") {
          box.append(make("summary", "", GROUP_TITLES[home]));
          box.open = home === "break";
        }
        boxes.set(home, box);
      }
      return boxes.get(home);
    };
    if (groups.includes("main")) boxOf("main");
    chips.remove(); // it may still hang in the form that is being replaced
    for (const field of fields) {
      echoes[field.name] ??= makeEcho();
      if (!(field.name in values)) values[field.name] = field.default;
      if (!groups.includes(field.group)) continue;
      const id = makeId();
      const editor = makeEditor(field, id, edit(field.name));
      editor.note = make("p", "lab-note");
      editor.note.id = `${id}-note`;
      editor.error = make("p", "lab-error");
      editor.error.id = `${id}-error`;
      editor.row.append(editor.error, editor.note);
      editor.row.classList.toggle("lab-same-title", GROUP_TITLES[field.group] === field.title);
      editors.set(field.name, editor);
      boxOf(field.group).append(editor.row);
      editor.set(values[field.name]);
    }
    boxes.get("main")?.append(modelRow);
    root.replaceChildren(...boxes.values());
    boxes.get("main")?.prepend(chips); // above all fields, which come and go with what is chosen: the chips stay where they are
  }

  function paint() {
    const state = model.get("state") ?? {};
    for (const field of fields) {
      const editor = editors.get(field.name);
      if (!editor) continue;
      const visible = holds(field);
      editor.row.hidden = !visible;
      editor.lock(Boolean(state.disabled || field.disabled));
      const error = local[field.name] || (state.errors ?? {})[field.name] || "";
      setText(editor.error, error);
      editor.error.hidden = !error;
      setText(editor.note, field.disabled ?? "");
      editor.note.hidden = !field.disabled;
      setAttr(editor.main, "aria-invalid", error ? "true" : null);
      const about = [error && editor.error.id, field.disabled && editor.note.id].filter(Boolean).join(" ");
      setAttr(editor.main, "aria-describedby", about || null);
    }
    const presets = state.presets ?? [];
    chips.hidden = presets.length === 0;
    setAttr(chips, "aria-label", state.words?.questions);
    setAttr(chips, "lang", state.words?.lang);
    keyed(chips, presets, (preset) => preset.question, () => {
      const chip = makeButton("", "", () => post(model, { type: "preset", index: Number(chip.dataset.index) }));
      return chip;
    }, (node, preset, i) => {
      setText(node, preset.question);
      node.dataset.index = i;
      node.disabled = Boolean(state.disabled);
      const on = Object.entries(preset.params ?? {}).every(([name, value]) => sameValue(values[name], value));
      setAttr(node, "aria-pressed", on ? "true" : "false");
    });
    const models = state.models ?? [];
    modelRow.hidden = models.length < 2;
    keyed(modelSelect, models, (item) => item.id, (item) => new Option(item.label, item.id), (node, item) => setText(node, item.label));
    modelSelect.disabled = Boolean(state.disabled);
    if (modelId !== (state.model ?? "")) modelId = state.model ?? "";
    if (document.activeElement !== modelSelect) modelSelect.value = modelId;
  }

  const stop = follow(model, el, "lab-controls lab-needs-kernel", (state) => {
    const groups = state.groups ?? ["main", "sampling", "compare", "break"];
    const key = JSON.stringify([state.schema, groups]);
    const incoming = state.values ?? {};
    const fresh = key !== schemaKey;
    for (const [name, value] of Object.entries(incoming)) {
      if (!fresh && sameValue(value, seen[name])) continue;
      if (!fresh && echoes[name]?.isEcho(value)) continue;
      values[name] = value;
      local[name] = "";
      waiting.delete(name);
      clearTimeout(timers.get(name));
      editors.get(name)?.set(value);
    }
    seen = { ...incoming };
    if (fresh) {
      schemaKey = key;
      build(state.schema, groups);
    }
    paint();
  });

  return () => {
    stop();
    for (const timer of timers.values()) clearTimeout(timer);
  };
}

export default { render };
