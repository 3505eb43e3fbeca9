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
  const rows = () => [...$('#list tbody').rows].filter(row => row.className !== 'u');
  const linkOf = row => row.cells[0].querySelector('a');
  const said = $('#said'), filter = $('#filter'), theme = $('#theme');
  const isSearch = new URLSearchParams(location.search).has('search');
  // Larger lists stay plain.
  const DRESSED_MAX = 5000;

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
  // Why the server refuses a name, where that can be seen from the name.
  const whyName = (status, path) => {
    if (status === 400 && /[\0-\x1f\x7f]/.test(path)) return 'names with line ends or other control characters are not accepted';
    if (status === 400) return 'the server does not accept this name';
    if ((status === 403 || status === 404) && /(^|\/)\./.test(path)) return 'names that begin with a dot are not accepted here';
    return why(status);
  };
  const why = status => ({ 0: 'the connection was lost', 401: 'you must sign in first', 403: 'not allowed here',
    404: 'it does not exist any more', 405: 'not allowed here', 409: 'the folder is missing, or not empty',
    412: 'it already exists', 413: 'too large for this server', 415: 'not this kind of file',
    423: 'it is locked', 429: 'too many at once', 503: 'the server is busy', 507: 'the server has no space left' })[status]
    || 'the server says ' + status;
  let fading;
  const tell = (text, isBad) => {
    clearTimeout(fading);
    said.textContent = text;
    said.className = isBad ? 'bad' : '';
  };
  // Good news goes away by itself.
  const tellBriefly = text => { tell(text); fading = setTimeout(() => tell(''), 5000) };

  // The list, as the server has it now.
  const load = async address => {
    try {
      const answer = await fetch(address, { headers: { Accept: 'text/html' }, cache: 'no-store' });
      if (!answer.ok) throw 0;
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      for (const part of ['#list', '#count']) $(part).replaceWith(page.querySelector(part));
      dress();
    } catch { location.href = address }
  };
  const sift = () => {
    const wanted = filter.value.toLowerCase();
    let shown = 0, all = 0;
    for (const row of rows()) {
      row.hidden = !isSearch && !row.cells[0].textContent.toLowerCase().includes(wanted);
      all++;
      if (!row.hidden) shown++;
    }
    if (wanted && !isSearch) tell(shown + ' of ' + all + ' shown');
    else if (/ shown$/.test(said.textContent)) tell('');
    count();
  };
  const button = (title, sign, name, onclick) =>
    make('button', { type: 'button', title, ariaLabel: title + ' ' + name, onclick }, sign);
  const dress = () => {
    const isPlain = rows().length > DRESSED_MAX;
    if (isPlain) $('#count').append('. In a list of more than 5,000 entries nothing can be previewed, selected, renamed or deleted.');
    for (const row of isPlain ? [] : $('#list').rows) {
      const cell = row.appendChild(make('td'));
      if (row.parentNode.tagName !== 'TBODY' || row.className === 'u') continue;
      const link = linkOf(row), name = link.textContent, isFolder = row.className === 'd';
      if (canPick) row.cells[0].prepend(make('input', { type: 'checkbox', ariaLabel: 'Select ' + name, onchange: count }));
      if (!isFolder && kindOf(name)) cell.append(button('Preview', '\u25c9', name, () => preview(row)));
      if (can.has('move')) cell.append(button('Rename', '\u270e', name, () => rename(link, name)));
      if (mayDelete(link)) cell.append(button('Delete', '\u2715', name, () => remove([link])));
    }
    if (canPick && rows().length && !isPlain) $('#list th').prepend(make('input', { id: 'every', type: 'checkbox', ariaLabel: 'Select all', onchange: event => {
      for (const row of rows()) if (!row.hidden) row.cells[0].firstChild.checked = event.target.checked;
      count();
    } }));
    count();
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
  const mayDelete = link => can.has('delete') && (!link.textContent.endsWith('/') || 'link' in link.closest('tr').dataset || can.has('rmdir') || can.has('rmtree'));
  const remove = async links => {
    const names = links.map(link => link.textContent), many = names.length > 1;
    const what = many ? names.length + ' entries' : names[0];
    // A link goes alone.
    const all = can.has('rmtree') && links.some(link => link.textContent.endsWith('/') && !('link' in link.closest('tr').dataset));
    if (!await ask('Delete ' + what + '?' + (all ? many ? ' Everything in the folders goes too.' : ' Everything in it goes too.' : ''), 'Delete')) return;
    if (all && !await ask('Everything in ' + (many ? 'the folders' : what) + ' will be lost. Are you sure?', 'Delete everything')) return;
    let bad = '', failed = 0;
    for (const link of links) {
      const status = await fetch(link.href, { method: 'DELETE' }).then(answer => answer.status, () => 0);
      if (status >= 200 && status < 300) continue;
      failed++;
      bad = bad || link.textContent + ' was not deleted: ' + why(status);
    }
    if (bad) tell(bad + (failed > 1 ? ' (and ' + (failed - 1) + ' more)' : ''), true);
    else tellBriefly(what + ' deleted');
    await load(location.href);
  };

  // Several entries at once.
  const archives = isSearch ? [] : ['zip', 'tar'].filter(kind => can.has(kind));
  const canPick = archives.length > 0 || can.has('delete');
  const picked = () => rows().filter(row => row.querySelector('input')?.checked && !row.hidden);
  const bar = make('div', { id: 'picked', hidden: true });
  bar.setAttribute('role', 'group');
  bar.setAttribute('aria-label', 'Selected entries');
  const amount = make('b');
  bar.append(amount);
  for (const kind of archives) bar.append(make('button', { type: 'button', onclick: () => {
    const names = picked().map(row => 'name=' + encodeURIComponent(linkOf(row).textContent.replace(/\/$/, '')));
    const address = '?download=' + kind + '&' + names.join('&');
    if (address.length > 6000) return tell('too many names for one download: select fewer, or take the whole folder', true);
    location.href = address;
  } }, 'Download .' + kind));
  if (can.has('delete')) bar.append(make('button', { type: 'button', onclick: () => {
    const links = picked().map(linkOf).filter(mayDelete);
    if (links.length) remove(links); else tell('folders cannot be deleted here', true);
  } }, 'Delete'));
  said.after(bar);
  const count = () => {
    const many = picked().length, every = $('#every');
    bar.hidden = !many;
    amount.textContent = many + ' selected';
    if (!every) return;
    every.checked = many > 0 && many === rows().filter(row => !row.hidden).length;
    every.indeterminate = many > 0 && !every.checked;
  };

  // A look at a file, without leaving the page.
  const KINDS = { img: /\.(png|jpe?g|gif|webp|svg|avif|bmp|ico)$/i, video: /\.(mp4|webm|mov|m4v|ogv)$/i, audio: /\.(mp3|ogg|oga|flac|wav|m4a|opus)$/i,
    pre: /(^|\/)[A-Z]+$|\.(txt|md|csv|tsv|log|json|xml|ya?ml|toml|ini|conf|cfg|sh|py|rs|js|ts|css|html?|c|h|cc|cpp|hpp|java|go|rb|pl|php|sql|diff|patch|tex|srt|vtt)$/i };
  const kindOf = name => Object.keys(KINDS).find(kind => KINDS[kind].test(name));
  const TEXT_MAX = 262144;
  const show = async (link, place) => {
    const name = link.textContent, kind = kindOf(name);
    if (kind !== 'pre') return place.replaceChildren(make(kind, kind === 'img' ? { src: link.href, alt: name } : { src: link.href, controls: true, ariaLabel: name }));
    const pre = make('pre', { tabIndex: 0 }, 'loading');
    place.replaceChildren(pre);
    try {
      const answer = await fetch(link.href, { headers: { Range: 'bytes=0-' + (TEXT_MAX - 1) } });
      if (!answer.ok && answer.status !== 416) throw answer.status;
      const text = answer.status === 416 ? '' : (await answer.text()).slice(0, TEXT_MAX);
      const size = +(answer.headers.get('Content-Range') || '').split('/')[1];
      pre.textContent = text + (size > TEXT_MAX ? '\n\u2026 (the rest is not shown)' : '');
    } catch (status) { pre.textContent = 'It cannot be shown: ' + why(+status || 0) }
  };
  const preview = row => {
    const all = rows().filter(other => !other.hidden && other.className !== 'd' && kindOf(linkOf(other).textContent));
    let at = all.indexOf(row);
    const title = make('a', { id: 'look' }), place = make('div', { className: 'look' });
    const go = step => {
      at = (at + step + all.length) % all.length;
      const link = linkOf(all[at]);
      title.textContent = link.textContent;
      title.href = link.href;
      show(link, place);
    };
    const box = make('dialog', { className: 'wide', onclose: () => { box.remove(); all[at].querySelector('[title=Preview]')?.focus() } },
      make('p', {}, title), place, make('div', {},
        make('button', { type: 'button', onclick: () => go(-1) }, 'Previous'), make('button', { type: 'button', onclick: () => go(1) }, 'Next'),
        make('button', { type: 'button', onclick: () => box.close() }, 'Close')));
    box.setAttribute('aria-labelledby', 'look');
    box.onkeydown = event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step && !/VIDEO|AUDIO/.test(event.target.tagName)) { event.preventDefault(); go(step) }
    };
    document.body.append(box);
    box.showModal();
    go(0);
  };

  const rename = async (link, name) => {
    const slash = name.endsWith('/') ? '/' : '', old = name.replace(/\/$/, '').replace(/.*\//, '');
    const next = await ask('Rename ' + name + ' to:', 'Rename', { field: 'New name', value: old });
    if (!next || next === old) return;
    const to = new URL(link.href).pathname.replace(/[^/]*\/?$/, '') + encodeURIComponent(next) + slash;
    const status = await fetch(link.href, { method: 'MOVE', headers: { Destination: to, Overwrite: 'F' } })
      .then(answer => answer.status, () => 0);
    const isDone = status >= 200 && status < 300;
    if (isDone) tellBriefly(name + ' renamed');
    else tell(name + ' was not renamed: ' + whyName(status, next), true);
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
    const link = event.target.closest('#list th a');
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
    const links = [...document.querySelectorAll('#list tbody tr:not([hidden]) td:first-child a')];
    const next = links[links.indexOf(document.activeElement) + step];
    if (next) { event.preventDefault(); next.focus() }
  });

  // Uploads: two at a time, each with its bar, and one bar for all.
  const drop = $('#drop'), jobs = $('#jobs'), waiting = [];
  let running = 0, batch = [];
  const whole = make('progress', { max: 1, value: 0, ariaLabel: 'All uploads' }), state = make('span');
  const all = make('p', { id: 'all', hidden: true }, whole, state, make('button', { type: 'button', onclick: () => {
    for (const job of waiting.splice(0)) job.end('cancelled', true);
    for (const job of batch) job.request?.abort();
  } }, 'Cancel all'));
  jobs?.before(all);
  const total = () => {
    const sum = of => batch.reduce((sum, job) => sum + of(job), 0);
    whole.value = sum(job => job.isOver ? job.file.size + 1 : job.sent || 0) / sum(job => job.file.size + 1);
    state.textContent = batch.filter(job => job.isOver).length + ' of ' + batch.length + ' files, ' + Math.floor(whole.value * 100) + ' %';
    all.hidden = batch.length < 2;
    if (!batch.every(job => job.isOver)) return;
    // What went well goes away, what did not stays.
    const bad = batch.filter(job => job.isBad).length, many = batch.length;
    for (const job of batch) if (!job.isBad) job.item.remove();
    batch = [];
    all.hidden = true;
    if (bad) tell(many - bad + ' of ' + many + ' uploaded', true);
    else tellBriefly(many > 1 ? 'All ' + many + ' files are uploaded' : 'The file is uploaded');
    if (bad < many) load(location.href);
  };
  const send = job => {
    const { file, state, bar, stop } = job, isPut = can.has('put');
    const isNew = can.has('replace') && !job.replaces;
    const request = job.request = new XMLHttpRequest();
    request.open(isPut ? 'PUT' : 'POST', isPut ? address(job.path) : location.pathname);
    if (isNew) request.setRequestHeader('If-None-Match', '*');
    if (job.replaces) request.setRequestHeader('If-Match', '*');
    if (!isPut) request.setRequestHeader('Accept', 'application/json');
    let body = file;
    if (!isPut) { body = new FormData(); body.append('file', file) }
    const end = (text, isBad) => { running--; go(); job.end(text, isBad) };
    request.upload.onprogress = event => {
      bar.value = event.total ? event.loaded / event.total : 1;
      job.sent = bar.value * file.size;
      state.textContent = Math.floor(bar.value * 100) + ' %';
      total();
    };
    request.onload = async () => {
      // One that the list does not show, or that came meanwhile.
      if (request.status === 412 && isNew) {
        if (!await ask(job.path + ' already exists. Replace it?', 'Replace', { no: 'Skip' })) return end('skipped', true);
        job.replaces = true;
        return send(job);
      }
      const isDone = request.status >= 200 && request.status < 400;
      end(isDone ? 'done' : whyName(request.status, job.path), !isDone);
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
    const names = new Set(rows().map(row => linkOf(row).textContent));
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
      const job = { file, path, replaces, bar, state, stop, item, end: (text, isBad) => {
        bar.remove();
        stop.textContent = 'Dismiss';
        stop.onclick = () => item.remove();
        state.textContent = text;
        state.className = isBad ? 'bad' : '';
        job.isOver = true;
        job.isBad = isBad;
        total();
      } };
      jobs.append(item);
      if (isSkipped) { bar.remove(); stop.onclick = () => item.remove(); continue }
      stop.onclick = () => { waiting.splice(waiting.indexOf(job), 1); job.end('cancelled', true) };
      waiting.push(job);
      batch.push(job);
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
      if (status === 201) tellBriefly(name + ' created');
      else tell(name + ' was not created: ' + (status === 405 ? why(412) : whyName(status, name)), true);
      await load(location.href);
    };
  }
  dress();
});
})();
