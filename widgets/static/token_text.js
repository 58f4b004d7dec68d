// How a token's text is written so that all of it can be seen.

const NAMED = { "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\ufffd": "◌", "\u00ad": "U+00AD" };
// Control, format and direction characters are named, not obeyed; U+200D and U+FE0F join emoji and stay.
const HARD = /[\u0000-\u001f\u007f-\u009f\u00a0\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** How a token's text is written on its chip. */
function chipText(text) {
  if (text === "") return "∅";
  let shown = text.replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
  shown = shown.replace(HARD, (c) => {
    if (NAMED[c]) return NAMED[c];
    const code = c.charCodeAt(0);
    if (code >= 0xd800 && code <= 0xdfff) return "◌";
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  });
  return /^\p{M}/u.test(shown) ? `◌${shown}` : shown;
}
