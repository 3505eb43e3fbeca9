// What mdBook's page lacks for keyboards and screen readers: the bar is a landmark, and the switch of the table of contents a button.
(() => {
  // Wide blocks scroll, also by keyboard.
  for (const code of document.querySelectorAll('pre > code, .table-wrapper')) code.tabIndex = 0;
  const bar = document.querySelector('#mdbook-menu-bar');
  if (bar) bar.setAttribute('role', 'banner');
  const label = document.querySelector('label#mdbook-sidebar-toggle');
  const box = document.querySelector('#mdbook-sidebar-toggle-anchor');
  if (!label || !box) return;
  const button = document.createElement('button');
  button.type = 'button';
  for (const { name, value } of label.attributes) if (name !== 'for') button.setAttribute(name, value);
  button.append(...label.childNodes);
  button.addEventListener('click', () => box.click());
  box.addEventListener('change', () => button.setAttribute('aria-expanded', box.checked));
  label.replaceWith(button);
})();
