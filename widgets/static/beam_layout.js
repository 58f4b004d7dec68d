// Where each part of a beam tree stands: a pure function of the nodes, the step and what is folded.
// The best text runs straight along the top, what it beat hangs below. Ids are places in the list; -1 is the prompt;
// a path outside the tree has nodes of its own, called "greedy:7".

const FATES = ["kept", "finished", "pruned"];
const ROOM = 260; // so many candidates are shown at first; of more, those that lost are folded
const ROW = 25;
const CHIP = 20;
const GAP = 28;
const SHORT = 18; // characters of a token on its chip
const LONG = 30; // of a stretch

/** The nodes with their children, and how far each reaches. Read once for each tree. */
function readTree(tree) {
  const nodes = (tree?.nodes ?? []).map(([parent, step, text, logProb, score, rank, fate, why], id) => ({
    id, parent, step, text, logProb, score, rank, why, fate: FATES[fate] ?? "pruned", reach: step,
  }));
  for (let id = nodes.length - 1; id >= 0; id -= 1) {
    const { parent, reach } = nodes[id];
    if (parent >= 0 && nodes[id].fate !== "pruned") nodes[parent].reach = Math.max(nodes[parent].reach, reach);
  }
  const counts = [];
  for (const node of nodes) counts[node.step] = (counts[node.step] ?? 0) + 1;
  const ghosts = new Map();
  for (const path of tree?.paths ?? []) {
    let before = -1;
    let score = 0;
    path.ids = path.nodes.map((id, i) => {
      score += path.log_probs[i] ?? 0;
      const name = id >= 0 ? id : `${path.kind}:${i}`;
      if (id < 0) {
        ghosts.set(name, { id: name, parent: before, step: i, text: path.texts[i], logProb: path.log_probs[i], score, fate: "outside", kind: path.kind, reach: i });
      }
      before = name;
      return name;
    });
  }
  const steps = tree?.steps ?? [];
  const get = (id) => nodes[id] ?? ghosts.get(id);
  return { nodes, steps, counts, ghosts, paths: tree?.paths ?? [], target: new Set(lineage(get, tree?.target ?? -1)), get };
}

/** The ids from `id` up to the first token. */
function lineage(get, id) {
  const out = [];
  for (let node = get(id); node; node = get(node.parent)) out.push(node.id);
  return out;
}

/** What each node is after `step`: on the way to a running text, to one on the shelf, or neither. */
function standing(index, step, over, best) {
  const [running, shelf] = index.steps[step] ?? [[], []];
  const mark = (heads) => new Set(heads.flatMap((id) => lineage(index.get, id)));
  const sets = { running: mark(running), shelf: mark(shelf), ends: new Set(shelf), won: over ? mark([best]) : new Set() };
  sets.live = new Set([...(over && shelf.length ? [] : sets.running), ...sets.shelf]);
  sets.of = (node) => {
    if (node.fate === "outside") return node.kind;
    if (sets.won.has(node.id)) return "won";
    if (sets.running.has(node.id) && !over) return "running";
    if (sets.shelf.has(node.id)) return "shelf";
    return node.fate === "pruned" ? "lost" : "dead";
  };
  return sets;
}

/**
 * Steps through which every living text just goes on, none branches and none ends: three or more in a row.
 * With `alone` only those in which all of them share one node. Where one of `paths` leaves them, that step stays open.
 */
function plainStretches(index, live, step, alone, paths) {
  const count = new Array(step + 2).fill(0);
  const next = new Map();
  for (const id of live) {
    const node = index.get(id);
    count[node.step] += 1;
    next.set(node.parent, (next.get(node.parent) ?? 0) + 1);
  }
  const plain = count.map((n) => n > 0 && (!alone || n === 1));
  for (const id of live) if (next.get(id) !== 1) plain[index.get(id).step] = false;
  for (const { ids } of paths) plain[ids.findIndex((id) => !live.has(id))] = false;
  const found = [];
  for (let start = 0; start <= step; start += 1) {
    if (!plain[start]) continue;
    let stop = start;
    while (plain[stop + 1]) stop += 1;
    if (stop - start >= 2) found.push({ start, stop, shared: count[start] === 1 });
    start = stop;
  }
  return found;
}

/**
 * Items with x, y, width and row, and the size of the whole.
 * `view`: {losers, shared, greedy, sampled}; `opened`: node -> whether its lost children are shown;
 * `unfolded`: starts of stretches that are open; `followed`: ids that must be seen; `measure`: text -> pixels.
 */
function layTree(index, { step, width, planned, over, best }, { view, opened, unfolded, followed, measure, prompt }) {
  const sets = standing(index, step, over, best);
  const few = Math.max(index.nodes.length, planned ?? 0) <= ROOM; // what is planned, so that nothing folds midway
  const losers = view.losers ?? few;
  const paths = index.paths.filter((path) => view[path.kind]);
  const forced = new Set([...sets.live, ...followed]);
  for (const path of paths) path.ids.forEach((id) => forced.add(id));
  const ranges = view.shared || width < 2 ? [] : plainStretches(index, sets.live, step, losers, paths).filter((r) => !unfolded.has(r.start));
  const rangeOf = (depth) => ranges.find((r) => depth >= r.start && depth <= r.stop) ?? null;

  const root = { key: "-1", ids: [-1], last: -1, range: null, depth: -1, state: "root", kids: [], hidden: 0 };
  const itemOf = new Map([[-1, root]]);
  const items = [root];
  const place = (node) => {
    const parent = itemOf.get(node.parent);
    const range = rangeOf(node.step);
    const open = opened.get(node.parent) ?? (node.fate === "pruned" ? losers : few || losers);
    const visible = forced.has(node.id) || (open && !range && !parent?.range && parent?.last === node.parent);
    if (!parent || parent.closed || !visible) {
      const anchor = parent?.closed ?? parent;
      if (anchor) {
        anchor.hidden += 1;
        itemOf.set(node.id, { closed: anchor });
      }
      return;
    }
    const trunk = sets.live.has(node.id);
    if (range && parent.range === range && parent.last === node.parent && parent.trunk === trunk) {
      parent.ids.push(node.id);
      parent.last = node.id;
      itemOf.set(node.id, parent);
      return;
    }
    const item = { key: String(node.id), ids: [node.id], last: node.id, range, trunk, depth: node.step, node, state: sets.of(node), kids: [], hidden: 0, parent };
    itemOf.set(node.id, item);
    parent.kids.push(item);
    items.push(item);
  };
  for (const node of index.nodes) if (node.step <= step) place(node);
  for (const node of index.ghosts.values()) if (view[node.kind] && (node.step <= step || over)) place(node);

  const columns = [];
  for (const item of items) {
    const at = item.range ? item.range.start : item.depth;
    item.at = at;
    columns[at + 1] ??= { at, width: 0 };
    item.text = item === root ? chipText(tailText(prompt ?? "", 16)) : wordsOf(index, item);
  }
  const used = columns.filter(Boolean);
  used.forEach((column, i) => {
    column.order = i;
  });
  for (const item of items) {
    item.column = columns[item.at + 1];
    item.kids.sort((a, b) => rankOf(index, a) - rankOf(index, b));
  }
  // What no beam ever had runs above the tree, a row for each path.
  const outside = ["sampled", "greedy"].filter((kind) => items.some((item) => item.state === kind));
  const rows = settle(root, outside.length);
  for (const item of items) if (item.node?.fate === "outside") item.row = outside.indexOf(item.state);
  let x = 6;
  for (const item of items) {
    item.mark = item.hidden > 0 ? 14 + 7 * String(item.hidden).length : 0;
    item.w = Math.max(22, Math.ceil(measure(item.text)) + 14 + (item.state === "shelf" || item.state === "won" ? (ended(index, sets, item) ? 13 : 0) : 0));
    item.column.width = Math.max(item.column.width, item.w + (item.mark ? item.mark + 4 : 0));
  }
  for (const column of used) {
    column.x = x;
    x += column.width + GAP;
  }
  for (const item of items) {
    item.x = item.column.x;
    item.y = 8 + item.row * ROW;
    item.end = ended(index, sets, item);
  }
  return { items, itemOf, root, sets, paths, width: x - GAP + 8, height: rows * ROW + 14, losers, ranges };
}

/** Whether the item ends a text that is on the shelf. */
function ended(index, sets, item) {
  return sets.ends.has(item.last) && index.get(item.last)?.fate === "finished";
}

/** An item's words: a token, or the text of a stretch with its middle left out. */
function wordsOf(index, item) {
  if (!item.range) {
    const text = chipText(String(index.get(item.last).text ?? ""));
    return cutText(text, SHORT);
  }
  const text = item.ids.map((id) => String(index.get(id).text ?? "")).join("");
  const shown = chipText(text);
  const glyphs = [...shown];
  return glyphs.length <= LONG ? shown : `${glyphs.slice(0, LONG - 13).join("").trimEnd()} … ${glyphs.slice(-10).join("").trimStart()}`;
}

function cutText(text, most) {
  const glyphs = [...text];
  return glyphs.length <= most ? text : `${glyphs.slice(0, most - 1).join("")}…`;
}

/** The last whole words of a text, at most so many characters. */
function tailText(text, most) {
  const glyphs = [...text];
  if (glyphs.length <= most) return text;
  return `…${glyphs.slice(1 - most).join("").replace(/^\S*(?=\s\S)/, "")}`;
}

/** Order among siblings: the best text's line first, then what lived longest, then by rank. */
function rankOf(index, item) {
  const node = item.node;
  if (index.target.has(node.id)) return -1e6;
  return (node.fate === "pruned" ? 1e5 : -1e3 * node.reach) + node.rank;
}

/**
 * A row for each item, the first child's line before its siblings': as high as its column still has room, and not
 * above its parent. So lines never cross, and the best text's stays straight. Gives back the number of rows.
 */
function settle(root, top) {
  const bottom = new Map();
  let most = top;
  const stack = [root];
  while (stack.length) {
    const item = stack.pop();
    const { order } = item.column;
    item.row = Math.max(item.parent?.row ?? top, (bottom.get(order) ?? top - 1) + 1);
    bottom.set(order, item.row);
    most = Math.max(most, item.row);
    for (let i = item.kids.length - 1; i >= 0; i -= 1) if (item.kids[i].node.fate !== "outside") stack.push(item.kids[i]);
  }
  return most + 1;
}
