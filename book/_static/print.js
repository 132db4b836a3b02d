// Paper is light: a page that is read in dark colours prints in light ones.
(() => {
  const page = document.documentElement;
  let read;
  addEventListener("beforeprint", () => {
    read = page.dataset.theme;
    page.dataset.theme = "light";
    for (const image of document.querySelectorAll("img.only-light")) image.loading = "eager";
  });
  addEventListener("afterprint", () => {
    page.dataset.theme = read;
  });
})();
