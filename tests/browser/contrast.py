"""The contrast of all visible text of a page against what lies behind it."""

CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const f = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const groundOf = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const ground = rgba(getComputedStyle(at).backgroundColor);
      if (ground[3] > 250) return ground;
    }
    return rgba(getComputedStyle(document.documentElement).getPropertyValue("--lab-bg"));
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    const idle = "[disabled], :disabled, [aria-disabled], script, style";
    if (!walk.currentNode.data.trim() || !node.checkVisibility() || node.closest(idle)) continue;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(groundOf(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${walk.currentNode.data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}
"""
"""JavaScript: the texts below 4.5, each with its ratio."""
