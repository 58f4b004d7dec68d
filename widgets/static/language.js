// The same page in another language: what else the address says (theme, settings behind the #) goes along.
function keepAddress(link) {
  link.addEventListener("click", () => {
    const address = new URL(location.href);
    address.searchParams.set("lang", link.hreflang);
    link.href = address.href;
  });
}
