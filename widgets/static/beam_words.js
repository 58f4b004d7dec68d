// What is said of a node: its figures, what became of it, the whole text that it ends.

function signedText(value, digits = 3) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  return value.toFixed(digits).replace("-", "−");
}

/** A share as a percentage: "31 %", "0.42 %". */
function percentText(logProb) {
  if (typeof logProb !== "number" || !Number.isFinite(logProb)) return "–";
  const percent = 100 * Math.exp(logProb);
  if (percent >= 9.95) return `${percent.toFixed(0)} %`;
  return percent >= 0.00095 ? `${+percent.toPrecision(2)} %` : "below 0.001 %";
}

function ordinalText(number) {
  if ([11, 12, 13].includes(number % 100)) return `${number}th`;
  return `${number}${{ 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th"}`;
}

/** What became of a node in its step, with the numbers filled in. */
function fateText(index, node, state) {
  if (node.fate === "outside") return "Outside the tree: no beam ever had this token among its candidates.";
  const words = state.sentences ?? {};
  const template = words[node.why] ?? words[node.fate] ?? "";
  const numbers = { rank: ordinalText(node.rank + 1), of: index.counts[node.step], width: state.width };
  return template.replace(/\{(\w+)\}/g, (all, name) => numbers[name] ?? all);
}

/** What came of it afterwards, as far as the step on screen knows. */
function laterText(index, node, sets, state) {
  if (node.fate === "finished" && !sets.ends.has(node.id)) return "Better ones have pushed it off since.";
  if (node.fate !== "kept") return "";
  if (sets.won.has(node.id)) return "The best text goes through it.";
  if (sets.running.has(node.id)) return state.over ? "It was still running when the search stopped." : "It is still running.";
  if (sets.shelf.has(node.id)) return "A text on the shelf goes through it.";
  const last = Math.min(node.reach, state.step - 1);
  return last === node.step ? "All that followed it lost at once." : `All that followed it had lost by token ${last + 2}.`;
}

/** Which other paths go this way, or leave the beams here. */
function pathsText(index, node, paths) {
  const said = [];
  for (const { kind, ids } of paths) {
    const at = ids.indexOf(node.id);
    if (at < 0) continue;
    const name = kind === "greedy" ? "Greedy's path" : "The sampled path";
    if (node.fate === "pruned") said.push(`${name} takes it, and leaves the beams here.`);
    else if (node.fate !== "outside") said.push(`${name} takes it too.`);
  }
  return said.join(" ");
}

/** {figures: [[name, value]], sentence, text} of an item; `text` is what the model wrote up to here. */
function describe(index, item, layout, state) {
  const text = lineage(index.get, item.last).reverse().map((id) => String(index.get(id).text ?? "")).join("");
  if (item === layout.root) return { title: "the prompt", figures: [], sentence: "", text: "" };
  const node = index.get(item.last);
  if (item.range) {
    const hidden = item.hidden ? ` ${item.hidden} candidates that lost are folded away.` : "";
    const whose = item.range.shared ? "All living texts share these" : "No living text branched in these";
    return {
      title: `${item.ids.length} tokens`,
      figures: [["sum S", signedText(node.score)]],
      sentence: item.trunk ? `${whose} ${item.ids.length} tokens.${hidden} A click opens the stretch.` : `${item.ids.length} tokens of this path.`,
      text,
    };
  }
  const figures = [["probability", percentText(node.logProb)], ["sum S", signedText(node.score)]];
  if (node.fate !== "outside") figures.push(["rank", `${node.rank + 1} of ${index.counts[node.step]}`]);
  figures.push(["token", `${node.step + 1}`]);
  const sentence = [fateText(index, node, state), laterText(index, node, layout.sets, state), pathsText(index, node, layout.paths)];
  return { title: chipText(String(node.text ?? "")), figures, sentence: sentence.filter(Boolean).join(" "), text };
}

const STATE_WORDS = { won: "the best text", running: "running", shelf: "finished text", dead: "given up", lost: "lost", greedy: "greedy's path", sampled: "sampled path", root: "prompt" };

/** An item in one line, for those who hear it. */
function spoken(index, item, prompt) {
  if (item.state === "root") return `prompt: ${prompt}`;
  const node = index.get(item.last);
  const hidden = item.hidden ? `, ${item.hidden} folded` : "";
  if (item.range) return `${item.ids.length} tokens: ${item.text}, ${STATE_WORDS[item.state]}${hidden}`;
  const end = item.end ? ", end of a finished text" : "";
  return `${item.text}, ${percentText(node.logProb)}, ${STATE_WORDS[item.state]}${end}${hidden}`;
}
