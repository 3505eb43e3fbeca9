(() => {
'use strict';
const $ = s => document.querySelector(s);
const make = (tag, props, ...inside) => {
  const made = Object.assign(document.createElement(tag), props);
  made.append(...inside);
  return made;
};
const root = document.documentElement;
const kept = { get theme() { try { return localStorage.theme } catch { return '' } },
  set theme(value) { try { localStorage.theme = value } catch {} } };
if (kept.theme) root.dataset.theme = kept.theme;

addEventListener('DOMContentLoaded', () => {
  const can = new Set(document.body.dataset.can.split(' '));
  const rows = () => [...$('tbody').rows].filter(row => row.className !== 'u');
  const said = $('#said'), filter = $('#filter'), theme = $('#theme');

  // A dialog that answers: a text, the button that was chosen, or nothing.
  const ask = (text, yes, { field, value, no = 'Cancel', more = [] } = {}) => new Promise(answer => {
    const words = make('p', { id: 'ask' }, text);
    const input = field && make('input', { required: true, ariaLabel: field, value: value || '' });
    const not = make('button', { type: 'button', onclick: () => box.close() }, no);
    const others = more.map(word => make('button', { type: 'submit', value: word }, word));
    const buttons = make('div', {}, not, make('button', { value: yes }, yes), ...others);
    const form = make('form', { method: 'dialog' }, words, ...(input ? [make('p', {}, input)] : []), buttons);
    let result = null;
    form.onsubmit = event => { result = input ? input.value : event.submitter?.value || yes };
    const box = make('dialog', { onclose: () => { box.remove(); answer(result) } }, form);
    box.setAttribute('aria-labelledby', 'ask');
    document.body.append(box);
    box.showModal();
    (input || not).focus();
  });
  const why = status => ({ 0: 'the connection was lost', 401: 'you must sign in first', 403: 'not allowed here',
    404: 'it does not exist any more', 405: 'not allowed here', 409: 'the folder is missing, or not empty',
    412: 'it already exists', 413: 'too large for this server', 415: 'not this kind of file',
    423: 'it is locked', 429: 'too many at once', 503: 'the server is busy', 507: 'the server has no space left' })[status]
    || 'the server says ' + status;
  const tell = (text, isBad) => { said.textContent = text; said.className = isBad ? 'bad' : '' };

  // The list, as the server has it now.
  const load = async address => {
    try {
      const answer = await fetch(address, { headers: { Accept: 'text/html' }, cache: 'no-store' });
      if (!answer.ok) throw 0;
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      for (const part of ['table', '#count']) $(part).replaceWith(page.querySelector(part));
      dress();
    } catch { location.href = address }
  };
  const sift = () => {
    const wanted = filter.value.toLowerCase();
    let shown = 0, all = 0;
    for (const row of rows()) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      all++;
      if (!row.hidden) shown++;
    }
    if (wanted) tell(shown + ' of ' + all + ' shown');
    else if (/ shown$/.test(said.textContent)) tell('');
  };
  const dress = () => {
    if (can.has('delete') || can.has('move')) for (const row of $('table').rows) {
      const link = row.cells[0].firstChild, name = link.textContent;
      const cell = row.appendChild(make('td'));
      const isFolder = row.className === 'd';
      const isEntry = row.parentNode.tagName === 'TBODY' && row.className !== 'u';
      if (isEntry && can.has('move'))
        cell.append(make('button', { type: 'button', title: 'Rename', ariaLabel: 'Rename ' + name,
          onclick: () => rename(link, name) }, '\u270e'));
      if (isEntry && can.has('delete') && (!isFolder || can.has('rmdir') || can.has('rmtree')))
        cell.append(make('button', { type: 'button', title: 'Delete', ariaLabel: 'Delete ' + name,
          onclick: () => remove(link, name) }, '\u2715'));
    }
    for (const time of document.querySelectorAll('time')) {
      const at = new Date(time.dateTime);
      time.title = at.toString();
      time.textContent = local(at);
    }
    $('#zone').textContent = zone(new Date());
    sift();
  };
  // Times in the zone of the browser.
  const two = number => String(number).padStart(2, 0);
  const local = at => at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate())
    + ' ' + two(at.getHours()) + ':' + two(at.getMinutes());
  const zone = at => {
    const minutes = -at.getTimezoneOffset(), size = Math.abs(minutes);
    return 'UTC' + (minutes ? (minutes < 0 ? '-' : '+') + two(size / 60 | 0) + ':' + two(size % 60) : '');
  };
  const remove = async (link, name) => {
    const all = name.endsWith('/') && can.has('rmtree') ? ' Everything in it goes too.' : '';
    if (!await ask('Delete ' + name + '?' + all, 'Delete')) return;
    if (all && !await ask('Everything in ' + name + ' will be lost. Are you sure?', 'Delete everything')) return;
    const status = await fetch(link.href, { method: 'DELETE' }).then(answer => answer.status, () => 0);
    const isDone = status >= 200 && status < 300;
    tell(isDone ? name + ' deleted' : name + ' was not deleted: ' + why(status), !isDone);
    await load(location.href);
  };

  const rename = async (link, name) => {
    const slash = name.endsWith('/') ? '/' : '', old = slash ? name.slice(0, -1) : name;
    const next = await ask('Rename ' + name + ' to:', 'Rename', { field: 'New name', value: old });
    if (!next || next === old) return;
    const to = new URL('./' + encodeURIComponent(next) + slash, location.href).pathname;
    const status = await fetch(link.href, { method: 'MOVE', headers: { Destination: to, Overwrite: 'F' } })
      .then(answer => answer.status, () => 0);
    const isDone = status >= 200 && status < 300;
    tell(isDone ? name + ' renamed' : name + ' was not renamed: ' + why(status), !isDone);
    await load(location.href);
  };

  filter.oninput = sift;
  filter.onkeydown = event => { if (event.key === 'Escape') { filter.value = ''; sift() } };
  theme.onclick = () => {
    const isDark = getComputedStyle(root).colorScheme === 'dark';
    kept.theme = root.dataset.theme = isDark ? 'light' : 'dark';
  };
  filter.hidden = theme.hidden = false;
  document.addEventListener('click', event => {
    const link = event.target.closest('th a');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.pushState(null, '', link.href);
    load(link.href);
  });
  addEventListener('popstate', () => load(location.href));
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $('dialog')) return;
    const isTyping = /INPUT|TEXTAREA/.test(event.target.tagName);
    if (event.key === '/' && !isTyping) { event.preventDefault(); filter.focus() }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || (isTyping && event.target !== filter)) return;
    const links = [...document.querySelectorAll('tbody tr:not([hidden]) a')];
    const next = links[links.indexOf(document.activeElement) + step];
    if (next) { event.preventDefault(); next.focus() }
  });

  // Uploads: two at a time, each with its bar.
  const drop = $('#drop'), jobs = $('#jobs'), waiting = [];
  let running = 0;
  const send = job => {
    const { file, state, bar, stop } = job, isPut = can.has('put');
    const isNew = can.has('replace') && !job.replaces;
    const request = new XMLHttpRequest();
    request.open(isPut ? 'PUT' : 'POST', isPut ? address(job.path) : location.pathname);
    if (isNew) request.setRequestHeader('If-None-Match', '*');
    if (job.replaces) request.setRequestHeader('If-Match', '*');
    if (!isPut) request.setRequestHeader('Accept', 'application/json');
    let body = file;
    if (!isPut) { body = new FormData(); body.append('file', file) }
    const end = (text, isBad) => {
      bar.remove();
      stop.textContent = 'Dismiss';
      stop.onclick = () => job.item.remove();
      state.textContent = text;
      state.className = isBad ? 'bad' : '';
      running--;
      go();
      if (!isBad) load(location.href);
    };
    request.upload.onprogress = event => {
      bar.value = event.total ? event.loaded / event.total : 1;
      state.textContent = Math.floor(bar.value * 100) + ' %';
    };
    request.onload = async () => {
      // One that the list does not show, or that came meanwhile.
      if (request.status === 412 && isNew) {
        if (!await ask(job.path + ' already exists. Replace it?', 'Replace', { no: 'Skip' })) return end('skipped', true);
        job.replaces = true;
        return send(job);
      }
      const isDone = request.status >= 200 && request.status < 400;
      end(isDone ? 'done' : why(request.status), !isDone);
    };
    request.onerror = () => end(why(0), true);
    request.onabort = () => end('cancelled', true);
    stop.onclick = () => request.abort();
    state.textContent = '0 %';
    request.send(body);
  };
  const go = () => { while (running < 2 && waiting.length) { running++; send(waiting.shift()) } };
  const address = path => './' + path.split('/').map(encodeURIComponent).join('/');
  // What is known to exist is asked for before anything is sent.
  const take = async files => {
    const names = new Set(rows().map(row => row.cells[0].firstChild.textContent));
    const isTaken = file => can.has('replace') && names.has(file.path);
    const taken = files.filter(isTaken);
    let all = '';
    for (const given of files) {
      const { file, path } = given;
      let replaces = false;
      if (isTaken(given)) {
        const more = taken.length > 1 ? ['Replace all', 'Skip all'] : [];
        const answer = all || await ask(path + ' already exists. Replace it?', 'Replace', { no: 'Skip', more });
        if (answer && answer.endsWith(' all')) all = answer;
        replaces = /^Replace/.test(answer || '');
      }
      const isSkipped = isTaken(given) && !replaces;
      const bar = make('progress', { max: 1, value: 0, ariaLabel: 'Upload of ' + path });
      const state = make('span', {}, isSkipped ? 'skipped' : 'waiting');
      state.setAttribute('role', 'status');
      const stop = make('button', { type: 'button' }, isSkipped ? 'Dismiss' : 'Cancel');
      const item = make('li', {}, make('b', {}, path), bar, state, stop);
      const job = { file, path, replaces, bar, state, stop, item };
      jobs.append(item);
      if (isSkipped) { bar.remove(); stop.onclick = () => item.remove(); continue }
      stop.onclick = () => { waiting.splice(waiting.indexOf(job), 1); item.remove() };
      waiting.push(job);
    }
    go();
  };
  // All files of a dropped folder; the folders themselves are made on the way.
  const gather = async (entry, path, files) => {
    if (entry.isFile) {
      files.push({ file: await new Promise((good, bad) => entry.file(good, bad)), path });
      return;
    }
    if (can.has('mkcol')) await fetch(address(path) + '/', { method: 'MKCOL' });
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((good, bad) => reader.readEntries(good, bad));
      if (!some.length) return;
      for (const one of some) await gather(one, path + '/' + one.name, files);
    }
  };
  const drop_in = async data => {
    const entries = [...data.items].map(item => item.webkitGetAsEntry?.()).filter(entry => entry);
    const plain = [...data.files].map(file => ({ file, path: file.name }));
    if (!entries.some(entry => entry.isDirectory)) return take(plain);
    if (!can.has('put')) return tell('folders cannot be uploaded here: choose files', true);
    const files = [];
    try { for (const entry of entries) await gather(entry, entry.name, files) }
    catch { tell('the folder could not be read', true) }
    await take(files);
    if (!files.length) load(location.href);
  };
  if (drop) {
    const input = $('#files');
    input.onchange = () => { take([...input.files].map(file => ({ file, path: file.name }))); input.value = '' };
    drop.hidden = false;
    drop.onsubmit = event => event.preventDefault();
    for (const button of drop.querySelectorAll('[type=submit]')) button.hidden = true;
    const over = is => event => { event.preventDefault(); drop.classList.toggle('over', is) };
    addEventListener('dragover', over(true));
    addEventListener('dragleave', over(false));
    addEventListener('drop', event => { over(false)(event); drop_in(event.dataTransfer) });
    addEventListener('beforeunload', event => { if (running) event.preventDefault() });
  }
  const folder = $('#folder');
  if (folder) {
    folder.hidden = false;
    folder.onclick = async () => {
      const name = await ask('A new folder here:', 'Create', { field: 'Name of the folder' });
      if (!name) return;
      const address = './' + encodeURIComponent(name) + '/';
      const status = await fetch(address, { method: 'MKCOL' }).then(answer => answer.status, () => 0);
      tell(status === 201 ? name + ' created' : name + ' was not created: ' + (status === 405 ? why(412) : why(status)), status !== 201);
      await load(location.href);
    };
  }
  dress();
});
})();
