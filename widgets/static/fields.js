// One form field from its JSON schema: what it is, how it is checked in words, and the control that edits it.
// An editor is { row, set(value), lock(on) }; it calls edit(value, error, wait) with wait in milliseconds.

const grouped = (number) => (Math.abs(number) >= 10000 ? number.toLocaleString("en-GB") : String(number));

/** The facts of one field, references and optional types resolved. */
function describeField(name, raw, schema) {
  let spec = raw;
  const option = (raw.anyOf ?? raw.allOf ?? []).find((item) => item.type !== "null");
  if (option) spec = { ...option, ...raw };
  if (spec.$ref) spec = { ...(schema.$defs?.[spec.$ref.split("/").pop()] ?? {}), ...spec };
  const choices = spec.enum ?? (spec.type === "boolean" && spec.labels ? [false, true] : null);
  const guessed = choices ? "select" : { boolean: "toggle", string: "text", array: "layers" }[spec.type] ?? "number";
  return {
    ...spec, name, choices,
    title: spec.title ?? name,
    hint: spec.hint ?? guessed,
    group: spec.group ?? "main",
    whole: spec.type === "integer",
    step: spec.step ?? (spec.type === "integer" ? 1 : 0.01),
    labels: spec.labels ?? (choices ?? []).map(String),
  };
}

/** Why a value is not allowed, naming it and the limit; "" when it is. */
function checkField(field, value) {
  const unit = field.unit ? ` ${field.unit}` : "";
  if (typeof value === "number") {
    if (field.minimum !== undefined && value < field.minimum) return `${grouped(value)} is below the limit of ${grouped(field.minimum)}${unit}.`;
    if (field.exclusiveMinimum !== undefined && value <= field.exclusiveMinimum) return `${grouped(value)} is not above ${grouped(field.exclusiveMinimum)}${unit}.`;
    if (field.maximum !== undefined && value > field.maximum) return `${grouped(value)} is above the limit of ${grouped(field.maximum)}${unit}.`;
    if (field.exclusiveMaximum !== undefined && value >= field.exclusiveMaximum) return `${grouped(value)} is not below ${grouped(field.exclusiveMaximum)}${unit}.`;
  }
  if (typeof value === "string" && field.type === "string" && !field.choices) {
    const length = [...value].length;
    if (length < (field.minLength ?? 0)) return length === 0 ? "It is empty; write at least one character." : `${length} characters; at least ${field.minLength}.`;
    if (length > (field.maxLength ?? Infinity)) return `${grouped(length)} characters; at most ${grouped(field.maxLength)}.`;
  }
  if (Array.isArray(value)) {
    const low = field.items?.minimum ?? 0;
    const high = field.items?.maximum ?? Infinity;
    const bad = value.find((item) => item < low || item > high);
    if (bad !== undefined) return `${bad} is no layer; they go from ${low} to ${high === Infinity ? "the last" : high}.`;
    if (value.length > (field.maxItems ?? Infinity)) return `${value.length} chosen; at most ${field.maxItems}.`;
  }
  return "";
}

/** A typed number: { value } or { error }. */
function parseNumber(field, text) {
  const trimmed = text.trim();
  if (trimmed === "") return { error: "It is empty; write a number." };
  const shape = field.whole ? /^[+-]?\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  const value = Number(trimmed);
  if (!shape.test(trimmed) || !Number.isFinite(value)) {
    const shown = trimmed.length > 24 ? `${trimmed.slice(0, 24)}…` : trimmed;
    return { error: `“${shown}” is not a ${field.whole ? "whole number" : "number"}.` };
  }
  if (field.whole && !Number.isSafeInteger(value)) return { error: `${trimmed} is too large.` };
  return { value, error: checkField(field, value) };
}

function makeRow(field, id) {
  const row = make("div", `lab-field lab-field-${field.hint}`);
  row.dataset.field = field.name;
  const label = make("label", "lab-label", field.title);
  label.htmlFor = id;
  if (field.description) label.title = field.description;
  row.append(label);
  return { row, label };
}

function textEditor(field, id, edit) {
  const { row } = makeRow(field, id);
  const area = make("textarea", "lab-input");
  area.id = id;
  area.rows = 4;
  area.spellcheck = false;
  area.dir = "auto";
  area.addEventListener("input", () => edit(area.value, checkField(field, area.value), 300));
  area.addEventListener("change", () => edit(area.value, checkField(field, area.value), 0));
  row.append(area);
  return { row, main: area, set: (value) => { if (area.value !== String(value ?? "")) area.value = value ?? ""; }, lock: (on) => { area.disabled = on; } };
}

/** A short text on one line: a name, a path. Names that are known to do can be chosen below it. */
function lineEditor(field, id, edit) {
  const { row } = makeRow(field, id);
  const box = make("input", "lab-input");
  box.type = "text";
  box.id = id;
  box.autocomplete = "off";
  box.spellcheck = false;
  setAttr(box, "placeholder", field.placeholder);
  const known = field.suggestions ?? [];
  const choice = knownChoice(field, known);
  const show = (value) => { choice.value = String(known.indexOf(value)); };
  const read = (wait) => { show(box.value); edit(box.value, checkField(field, box.value), wait); };
  box.addEventListener("input", () => read(300));
  box.addEventListener("change", () => read(0));
  choice.addEventListener("change", () => { box.value = known[Number(choice.value)] ?? box.value; read(0); });
  row.append(box);
  if (known.length > 1) {
    const label = make("label", "lab-label", "or one that is here");
    label.htmlFor = choice.id = makeId();
    row.append(label, choice);
  }
  return {
    row, main: box,
    set: (value) => { if (box.value !== String(value ?? "")) box.value = value ?? ""; show(box.value); },
    lock: (on) => { box.disabled = on; choice.disabled = on; },
  };
}

function knownChoice(field, known) {
  const choice = make("select", "lab-input lab-select");
  setAttr(choice, "aria-label", `${field.title}, or one that is here`);
  const none = new Option("choose one that is here", "-1");
  none.disabled = true;
  choice.append(none, ...known.map((name, i) => new Option(name, String(i))));
  return choice;
}

/** Many lines that do not wrap, one item each, with how many there are. */
function linesEditor(field, id, edit) {
  const made = textEditor(field, id, edit);
  const { main: area, row } = made;
  area.rows = 8;
  area.wrap = "off";
  area.classList.add("lab-lines");
  setAttr(area, "placeholder", field.placeholder);
  const count = make("output", "lab-value");
  count.htmlFor = id;
  row.querySelector(".lab-label").after(count);
  const tell = () => {
    const lines = area.value.split("\n").filter((line) => line.trim()).length;
    setText(count, lines === 1 ? "1 line" : `${lines.toLocaleString("en-GB")} lines`);
  };
  area.addEventListener("input", tell);
  tell();
  return { ...made, set: (value) => { made.set(value); tell(); } };
}

function numberBox(field, edit, className) {
  const box = make("input", className);
  box.type = "text";
  box.inputMode = field.whole ? "numeric" : "decimal";
  box.autocomplete = "off";
  const read = (wait) => {
    const { value, error } = parseNumber(field, box.value);
    edit(value, error ?? "", wait);
  };
  box.addEventListener("input", () => read(300));
  box.addEventListener("change", () => read(0));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const { value } = parseNumber(field, box.value);
    if (!step || value === undefined) return;
    event.preventDefault();
    const next = Number((value + step * field.step).toFixed(6));
    if (checkField(field, next)) return;
    box.value = String(next);
    read(100);
  });
  return box;
}

function numberEditor(field, id, edit) {
  const { row } = makeRow(field, id);
  const box = numberBox(field, edit, "lab-input");
  box.id = id;
  row.append(box);
  return { row, main: box, set: (value) => { box.value = String(value ?? ""); }, lock: (on) => { box.disabled = on; } };
}

function sliderEditor(field, id, edit) {
  const { row, label } = makeRow(field, id);
  const slider = make("input", "lab-slider");
  slider.type = "range";
  slider.id = id;
  slider.min = field.minimum ?? (field.exclusiveMinimum !== undefined ? field.exclusiveMinimum + field.step : 0);
  slider.max = field.maximum ?? 100;
  slider.step = field.step;
  const box = numberBox(field, (value, error, wait) => { if (!error) slide(value); edit(value, error, wait); }, "lab-exact");
  setAttr(box, "aria-label", `${field.title}, exact value`);
  const size = () => box.style.setProperty("--chars", Math.max(2, box.value.length));
  const slide = (value) => {
    slider.value = value;
    const share = (Number(slider.value) - slider.min) / (slider.max - slider.min || 1);
    slider.style.setProperty("--fill", `${(share * 100).toFixed(2)}%`);
    setAttr(slider, "aria-valuetext", field.unit ? `${value} ${field.unit}` : null);
  };
  slider.addEventListener("input", () => {
    const value = Number(slider.value);
    slide(value);
    box.value = String(value);
    size();
    edit(value, checkField(field, value), 80);
  });
  slider.addEventListener("change", () => edit(Number(slider.value), checkField(field, Number(slider.value)), 0));
  box.addEventListener("input", size);
  label.after(box);
  row.append(slider);
  return {
    row, main: slider,
    set: (value) => { slide(value); box.value = String(value ?? ""); size(); },
    lock: (on) => { slider.disabled = on; box.disabled = on; },
  };
}

function toggleEditor(field, id, edit) {
  const { row, label } = makeRow(field, id);
  const box = make("input", "lab-check");
  box.type = "checkbox";
  box.id = id;
  box.addEventListener("change", () => edit(box.checked, "", 0));
  label.before(box);
  return { row, main: box, set: (value) => { box.checked = Boolean(value); }, lock: (on) => { box.disabled = on; } };
}

/** One of a few, all visible: side by side (segmented) or below each other (the list of known mistakes). */
function radioEditor(field, id, edit, className) {
  const row = make("fieldset", `lab-field ${className}`);
  row.dataset.field = field.name;
  const legend = make("legend", "lab-label", field.title);
  if (field.description) legend.title = field.description;
  const box = make("div", "lab-options");
  const radios = field.choices.map((choice, i) => {
    const label = make("label", "lab-option");
    const radio = make("input", "lab-radio");
    radio.type = "radio";
    radio.name = id;
    radio.addEventListener("change", () => edit(choice, "", 0));
    label.append(radio, make("span", "", field.labels[i] ?? String(choice)));
    box.append(label);
    return radio;
  });
  row.append(legend, box);
  return {
    row, main: row,
    set: (value) => field.choices.forEach((choice, i) => {
      radios[i].checked = choice === value;
      radios[i].classList.toggle("lab-broken", className === "lab-field-list" && choice !== field.default);
    }),
    lock: (on) => { for (const radio of radios) radio.disabled = on; },
  };
}

function selectEditor(field, id, edit) {
  const { row } = makeRow(field, id);
  const select = make("select", "lab-input lab-select");
  select.id = id;
  const impossible = field.disabled_options ?? {}; // choice -> why not
  field.choices.forEach((choice, i) => {
    const option = new Option(field.labels[i] ?? "", String(i));
    if (impossible[choice]) {
      option.disabled = true;
      option.title = impossible[choice];
      option.text += " (not here)";
    }
    select.append(option);
  });
  select.addEventListener("change", () => edit(field.choices[Number(select.value)], "", 0));
  row.append(select);
  return { row, main: select, set: (value) => { select.value = String(field.choices.indexOf(value)); }, lock: (on) => { select.disabled = on; } };
}

/** A slider over a list of choices, in their order. */
function stepsEditor(field, id, edit) {
  const { row, label } = makeRow(field, id);
  const slider = make("input", "lab-slider");
  slider.type = "range";
  slider.id = id;
  slider.min = 0;
  slider.max = Math.max(0, field.choices.length - 1);
  slider.step = 1;
  const shown = make("output", "lab-value");
  shown.htmlFor = id;
  const slide = (at) => {
    slider.value = at;
    slider.style.setProperty("--fill", `${((at / (Number(slider.max) || 1)) * 100).toFixed(2)}%`);
    setText(shown, field.labels[at] ?? "");
    setAttr(slider, "aria-valuetext", field.labels[at] ?? null);
  };
  slider.addEventListener("input", () => {
    slide(Number(slider.value));
    edit(field.choices[Number(slider.value)], "", 80);
  });
  slider.addEventListener("change", () => edit(field.choices[Number(slider.value)], "", 0));
  label.after(shown);
  row.append(slider);
  return { row, main: slider, set: (value) => slide(Math.max(0, field.choices.indexOf(value))), lock: (on) => { slider.disabled = on; } };
}

function layersEditor(field, id, edit) {
  const count = (field.items?.maximum ?? Infinity) + 1;
  if (count > 96) return layersTextEditor(field, id, edit);
  const row = make("div", "lab-field lab-field-layers");
  row.dataset.field = field.name;
  const label = make("span", "lab-label", field.title);
  label.id = `${id}-label`;
  if (field.description) label.title = field.description;
  const shown = make("output", "lab-value");
  const box = make("div", "lab-layers");
  setAttr(box, "role", "group");
  setAttr(box, "aria-labelledby", label.id);
  let value = [];
  const buttons = Array.from({ length: count }, (_, layer) => {
    const button = makeButton("lab-layer", String(layer), () => {
      const next = value.includes(layer) ? value.filter((item) => item !== layer) : [...value, layer].sort((a, b) => a - b);
      set(next);
      edit(next, checkField(field, next), 150);
    });
    setAttr(button, "aria-label", `layer ${layer}`);
    button.tabIndex = layer ? -1 : 0;
    box.append(button);
    return button;
  });
  rove(box, () => buttons);
  const set = (next) => {
    value = Array.isArray(next) ? next : [];
    buttons.forEach((button, layer) => setAttr(button, "aria-pressed", value.includes(layer)  ? "true" : "false"));
    setText(shown, value.length ? value.join(", ") : "spread");
  };
  row.append(label, shown, box);
  return { row, main: box, set, lock: (on) => { for (const button of buttons) button.disabled = on; } };
}

function layersTextEditor(field, id, edit) {
  const { row } = makeRow(field, id);
  const box = make("input", "lab-input");
  box.id = id;
  box.placeholder = "0, 9, 19, 29";
  const read = (wait) => {
    const parts = box.value.split(/[\s,;]+/).filter(Boolean);
    const bad = parts.find((part) => !/^\d+$/.test(part));
    if (bad !== undefined) return edit(undefined, `“${bad.slice(0, 24)}” is no layer; write numbers: 0, 9, 19.`, wait);
    const value = [...new Set(parts.map(Number))].sort((a, b) => a - b);
    return edit(value, checkField(field, value), wait);
  };
  box.addEventListener("input", () => read(300));
  box.addEventListener("change", () => read(0));
  row.append(box);
  return { row, main: box, set: (value) => { box.value = (value ?? []).join(", "); }, lock: (on) => { box.disabled = on; } };
}

/** The editor that a field's hint asks for. */
function makeEditor(field, id, edit) {
  if (field.choices && field.hint === "select" && field.group === "break" && field.choices.length <= 8) return radioEditor(field, id, edit, "lab-field-list");
  if (field.choices && field.hint === "segmented") return radioEditor(field, id, edit, "lab-field-segmented");
  if (field.choices && field.hint === "slider") return stepsEditor(field, id, edit);
  if (field.choices) return selectEditor(field, id, edit);
  const kinds = { text: textEditor, line: lineEditor, lines: linesEditor, slider: sliderEditor, number: numberEditor, toggle: toggleEditor, layers: layersEditor };
  return (kinds[field.hint] ?? textEditor)(field, id, edit);
}
