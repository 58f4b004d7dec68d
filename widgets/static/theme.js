// Light or dark, for pages of their own: a button that switches and remembers. Its words are {dark, light, theme}.
function makeThemeButton(words) {
  const body = document.body;
  const button = makeButton("lab-quiet", "", () => {
    const next = body.dataset.theme === "dark" ? "light" : "dark";
    body.dataset.theme = next;
    body.dataset.jpThemeLight = String(next === "light");
    try {
      localStorage.setItem("lab-theme", next);
    } catch {
      // private windows may refuse; the choice then lasts as long as the page
    }
    name();
  });
  const name = () => setText(button, body.dataset.theme === "dark" ? words.light : words.dark);
  name();
  setAttr(button, "aria-label", words.theme);
  return button;
}
