// Lays the tree on the page out and looks for what must never be; `window.lab` holds the functions of beam_layout.js.
async ([shared, losers, step]) => {
  const { readTree, layTree } = window.lab;
  const { model } = views.beam_tree[0];
  const state = model.get("state");
  const index = readTree(structuredClone(model.get("tree")));
  const at = { step: step ?? state.step, width: state.width, over: step === null && state.over, best: state.best };
  const view = { ...state.view, shared, losers };
  const none = { opened: new Map(), unfolded: new Set(), followed: new Set(), measure: (text) => 7.2 * text.length };
  const laid = layTree(index, at, { view, prompt: state.prompt, ...none });
  const bad = [];
  const places = new Set();
  for (const item of laid.items) {
    const place = `${item.column.order} ${item.row}`;
    const { parent, column } = item;
    if (places.has(place)) bad.push(`two at ${place}`);
    places.add(place);
    if (item.x + item.w > column.x + column.width + 0.5) bad.push(`wider than its column: ${item.text}`);
    if (parent && column !== parent.column && item.x < parent.x + parent.w) bad.push("left of its parent");
    if (item.x < 0 || item.y < 0 || item.x + item.w > laid.width || item.y + 20 > laid.height) bad.push("outside");
  }
  // No lines cross: down each column, the parents never go up again.
  const inTree = laid.items.filter((i) => i.parent && i.node.fate !== "outside" && i.column !== i.parent.column);
  for (const items of Map.groupBy(inTree, (item) => item.column.order).values()) {
    items.sort((a, b) => a.row - b.row);
    items.forEach((item, i) => {
      if (i && item.parent.row < items[i - 1].parent.row) bad.push(`lines cross in ${item.column.order}`);
    });
  }
  const ids = laid.items.flatMap((item) => item.ids).filter((id) => typeof id === "number" && id >= 0);
  const hidden = laid.items.reduce((sum, item) => sum + item.hidden, 0);
  const known = index.nodes.filter((node) => node.step <= at.step).length;
  const straight = laid.items.filter((i) => index.target.has(i.last)).every((i) => i.row === laid.root.row);
  return { bad, shown: ids.length, hidden, known, straight, drawn: laid.items.length };
}
