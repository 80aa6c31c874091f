/* SPDX-License-Identifier: Apache-2.0 */
'use strict';
/* The page of a trace. Times are nanoseconds from the start of the run, and the
 * view is a range of times. Only visible firings are drawn: each lane is sorted,
 * and firings narrower than a pixel are summed up pixel by pixel before painting. */
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($('data').textContent);

/* ---- reading ------------------------------------------------------------------ */

/* Decodes variable-length integers: seven bits per byte, the lowest bit is the sign.
 * Multiplies instead of shifting, because times are longer than 32 bits. */
function decode(text) {
  const bytes = atob(text || ''), out = new Float64Array(bytes.length);
  let n = 0;
  for (let i = 0; i < bytes.length;) {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes.charCodeAt(i++);
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    out[n++] = value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return out.subarray(0, n);
}

function readFirings(text) {
  const all = decode(text), count = all.length / 7 | 0;
  const f = {count, start: new Float64Array(count), end: new Float64Array(count),
             actor: new Int32Array(count), step: new Int32Array(count),
             microbatch: new Int32Array(count), piece: new Int32Array(count),
             rows: new Int32Array(count)};
  for (let i = 0, time = 0; i < count; i++) {
    time += all[7 * i];
    f.start[i] = time;
    f.end[i] = time + all[7 * i + 1];
    f.actor[i] = all[7 * i + 2];
    f.step[i] = all[7 * i + 3];
    f.microbatch[i] = all[7 * i + 4];
    f.piece[i] = all[7 * i + 5];
    f.rows[i] = all[7 * i + 6];
  }
  return f;
}

const devices = data.devices.map(([name, arena, workspace]) => ({name, arena, workspace}));
const queues = data.queues.map(([name, device, work]) => ({name, device, work}));
const registers = data.registers.map(([name, knob, device, producer, quota, bytes]) =>
  ({name, knob, device, producer, quota, bytes}));
const actors = data.actors.map(([name, cls, queue, stage]) =>
  ({name, cls, queue, stage, device: queues[queue].device}));
const firings = readFirings(data.firings);
const replay = readFirings(data.replay);
const classNames = Object.fromEntries([...data.classes].map((letter, i) => [letter, data.classNames[i]]));
const colors = {F: '#0072b2', B: '#e69f00', W: '#009e73', U: '#cc79a7',
                C: '#8a8a8a', L: '#d8cb2f'};
const inks = {F: '#fff', B: '#000', W: '#000', U: '#000', C: '#000', L: '#000'};
const classOf = (actor) => data.classes[actors[actor].cls];
const isWork = (actor) => 'FBW'.includes(classOf(actor));
const WAIT = Object.fromEntries(data.waits.map((name, i) => [name, i]));
const waitLetters = data.waits.map((name) => name[0]);
const waitNames = {input: 'waits for an input', credit: 'for a free slot', device: 'for its worker',
                   policy: 'held back', start: 'not begun'};
/* Labels of devices: "stage 1", and in a grid "stage 1 #2". */
const grid = actors.some((a) => a.name.includes('#'));
devices.forEach((d, device) => {
  const own = actors.filter((a) => a.device === device && a.stage >= 0 && 'FBW'.includes(data.classes[a.cls]));
  const stages = [...new Set(own.map((a) => a.stage))].sort((a, b) => a - b);
  const rank = /#(\d+)$/.exec(own.length ? own[0].name : '');
  d.place = stages.length ? `stage ${stages.length > 3 ? `${stages[0]}\u2026${stages[stages.length - 1]}` : stages.join(', ')}` +
    (grid ? ` #${rank ? rank[1] : 0}` : '') : '';
});

/* A lane: indices of firings in order of start. */
function makeLanes(f) {
  const lanes = queues.map(() => []);
  for (let i = 0; i < f.count; i++) lanes[actors[f.actor[i]].queue].push(i);
  return lanes.map((list) => {
    const index = Int32Array.from(list);
    let longest = 0;
    for (const i of index) longest = Math.max(longest, f.end[i] - f.start[i]);
    return {f, index, longest};
  });
}
const mostRows = firings.rows.reduce((a, b) => Math.max(a, b), -1); /* most valid rows of a firing; -1 if none has rows */
const lanes = makeLanes(firings), replayLanes = makeLanes(replay);

const idle = (() => {
  const all = decode(data.idle);
  let at = 0;
  return devices.map(() => {
    const count = all[at++];
    const p = {count, from: new Float64Array(count), to: new Float64Array(count),
               wait: new Uint8Array(count), reg: new Int32Array(count), firing: new Int32Array(count)};
    for (let i = 0, time = 0; i < count; i++) {
      time += all[at++];
      p.from[i] = time;
      p.to[i] = time + all[at++];
      p.wait[i] = all[at++];
      p.reg[i] = all[at++];
      p.firing[i] = all[at++];
    }
    return p;
  });
})();

/* Idle time that ended with each firing. */
const idleBefore = new Map();
idle.forEach((p) => {
  for (let i = 0; i < p.count; i++) {
    const list = idleBefore.get(p.firing[i]);
    if (list) list.push([p, i]);
    else idleBefore.set(p.firing[i], [[p, i]]);
  }
});

/* A curve: at time[i] the value becomes value[i]. */
function makeCurve(start, changes) {
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const time = [-1], value = [start];
  let now = start, most = start;
  for (let i = 0; i < changes.length; i++) {
    now += changes[i][1];
    if (i + 1 < changes.length && changes[i + 1][0] === changes[i][0]) continue;
    time.push(changes[i][0]);
    value.push(now);
    most = Math.max(most, now);
  }
  return {time: Float64Array.from(time), value: Float64Array.from(value), most};
}

const slots = [];   /* per register */
const memory = (() => {
  const all = decode(data.holds), changes = devices.map(() => []);
  const start = devices.map((d) => d.workspace);
  let at = 0;
  registers.forEach((r, index) => {
    const always = all[at++], count = all[at++], own = [];
    start[r.device] += always * r.bytes;
    let used = always;
    for (let i = 0, time = 0; i < count; i++) {
      time += all[at++];
      const length = all[at++];
      if (time > 0) own.push([time, 1]);
      else used++;
      if (length >= 0) own.push([time + length, -1]);
    }
    for (const [time, by] of own) changes[r.device].push([time, by * r.bytes]);
    start[r.device] += (used - always) * r.bytes;
    slots[index] = {...makeCurve(used, own), busy: count};
  });
  return devices.map((d, i) => makeCurve(start[i], changes[i]));
})();

/* Registers whose credits get a curve, device by device. Registers that are sometimes
 * full come first. */
const creditChoices = devices.map((d, device) =>
  registers.map((r, i) => i).filter((i) => registers[i].producer >= 0 && slots[i].busy > 1 &&
      actors[registers[i].producer].device === device && isWork(registers[i].producer))
    .sort((a, b) => (slots[b].most >= registers[b].quota) - (slots[a].most >= registers[a].quota) ||
                    registers[b].quota - registers[a].quota || a - b));
const creditShown = devices.map(() => 0);

/* ---- steps --------------------------------------------------------------------- */

const steps = (() => {
  const all = new Map();
  for (let i = 0; i < firings.count; i++) {
    const s = firings.step[i];
    let e = all.get(s);
    if (!e) all.set(s, e = {step: s, from: Infinity, to: 0, per: devices.map(() => null)});
    if (!isWork(firings.actor[i])) {
      e.wide = Math.max(e.wide || 0, firings.end[i]);
      continue;
    }
    e.from = Math.min(e.from, firings.start[i]);
    e.to = Math.max(e.to, firings.end[i]);
    const d = actors[firings.actor[i]].device;
    const x = e.per[d] || (e.per[d] = {from: firings.start[i], to: 0, busy: 0});
    x.to = Math.max(x.to, firings.end[i]);
    x.busy += firings.end[i] - firings.start[i];
  }
  return [...all.values()].filter((e) => e.to > e.from).sort((a, b) => a.step - b.step);
})();
/* The whole trace, which need not begin with the run. */
const begin = firings.count ? firings.start[0] : 0;
let end = begin + 1;
for (let i = 0; i < firings.count; i++) end = Math.max(end, firings.end[i]);
const replaySpan = (() => {
  let from = Infinity;
  for (let i = 0; i < replay.count; i++)
    if (isWork(replay.actor[i])) from = Math.min(from, replay.start[i]);
  return {from};
})();

/* ---- state ----------------------------------------------------------------------- */

const view = {from: begin, to: end};
const FEW = 8; /* devices whose curves are shown at first */
const few = devices.length <= FEW;
const shown = {queues: false, valid: few && mostRows >= 0, memory: few, credits: few, replay: few && replay.count > 0};
let current = -1;               /* index into steps; -1: the whole trace */
let pointed = null;             /* what the pointer is on */
let selected = -1;              /* firing */
let matches = null, match = -1; /* search results: a Set of firings, and the current index */
let matchList = [], matchRegs = new Set();
const lanesCanvas = $('lanes'), overview = $('overview');
const GUTTER = 128, AXIS = 24;
let rows = [], height = 0;

function format(ns) {
  const a = Math.abs(ns);
  const [unit, size] = a >= 1e9 ? ['s', 1e9] : a >= 1e6 ? ['ms', 1e6] : a >= 1e3 ? ['\u00b5s', 1e3] : ['ns', 1];
  return `${+(ns / size).toPrecision(4)} ${unit}`;
}
function formatBytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (n >= 1024 && u < 4) n /= 1024, u++;
  return `${+n.toPrecision(3)} ${units[u]}`;
}

/* Chooses the lanes' height. Without curves below, lanes share the available height, so that as
 * many as possible are visible. With curves they have the most readable height. */
function laneSizes() {
  const full = {lane: 30, gap: 8};
  if (shown.valid || shown.memory || shown.credits || shown.replay || shown.queues) return full;
  const room = ($('scroll').clientHeight - AXIS - 4) / Math.max(queues.filter((q) => q.work).length, 1);
  if (room >= full.lane + full.gap) return full;
  const gap = room >= 20 ? 3 : 1;
  return {lane: Math.max(Math.floor(room) - gap, 8), gap};
}

/* The parts of the page from top to bottom. */
function layOut() {
  rows = [];
  let y = AXIS;
  const size = laneSizes();
  devices.forEach((d, device) => {
    const add = (kind, h, more) => { rows.push({kind, y, h, device, ...more}); y += h; };
    queues.forEach((q, queue) => { if (q.device === device && q.work) add('lane', size.lane, {queue}); });
    if (shown.valid && mostRows >= 0)
      queues.forEach((q, queue) => { if (q.device === device && q.work) add('valid', 30, {queue}); });
    if (shown.replay && replay.count)
      queues.forEach((q, queue) => { if (q.device === device && q.work) add('replay', 13, {queue}); });
    if (shown.queues)
      queues.forEach((q, queue) => {
        if (q.device === device && !q.work && lanes[queue].index.length) add('queue', 15, {queue});
      });
    if (shown.memory) add('memory', 34, {});
    if (shown.credits && creditChoices[device].length) add('credits', 30, {});
    y += size.gap;
  });
  height = y + 4;
}

/* ---- drawing ----------------------------------------------------------------------- */

let css = {};
function readColors() {
  const s = getComputedStyle(document.documentElement);
  for (const name of ['back', 'text', 'faint', 'rule', 'panel', 'idle', 'idle-text', 'credit', 'accent'])
    css[name] = s.getPropertyValue('--' + name).trim();
}

function prepare(canvas, w, h) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    canvas.style.height = h + 'px';
  }
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  return c;
}

const lowerBound = (array, value, get) => {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (get(array[middle], middle) < value) low = middle + 1;
    else high = middle;
  }
  return low;
};

let width = 800;
const x = (ns) => GUTTER + (ns - view.from) / (view.to - view.from) * (width - GUTTER);
const time = (px) => view.from + (px - GUTTER) / (width - GUTTER) * (view.to - view.from);

function label(i, f, room) {
  const letter = classOf(f.actor[i]);
  const full = letter + f.microbatch[i] + (data.pieces > 1 ? '.' + f.piece[i] : '');
  return room >= 7 * full.length + 4 ? full : room >= 10 ? letter : '';
}

/* Draws a lane's firings; offset: the difference of its clock to the view's. */
function drawLane(c, lane, y, h, offset, faint) {
  const {f, index, longest} = lane, from = view.from - offset, to = view.to - offset;
  const scale = (width - GUTTER) / (view.to - view.from);
  const first = lowerBound(index, from - longest, (i) => f.start[i]);
  const sums = new Map(); /* class -> time covered, pixel by pixel */
  const labels = [];
  for (let k = first; k < index.length; k++) {
    const i = index[k];
    if (f.start[i] > to) break;
    if (f.end[i] < from) continue;
    const a = Math.max((f.start[i] - from) * scale, 0), b = Math.min((f.end[i] - from) * scale, width - GUTTER);
    if (b - a < 1.5) {
      const cls = classOf(f.actor[i]);
      let sum = sums.get(cls);
      if (!sum) sums.set(cls, sum = new Float32Array(width - GUTTER + 2));
      sum[a | 0] += Math.max(b - a, .08);
      continue;
    }
    const cls = classOf(f.actor[i]), gap = b - a > 6 ? 1 : 0;
    c.globalAlpha = (matches && !faint && !matches.has(i) ? .25 : 1) * (faint ? .75 : 1);
    c.fillStyle = colors[cls];
    c.fillRect(GUTTER + a, y, b - a - gap, h);
    if (b - a >= 10 && h >= 11) labels.push([GUTTER + (a + b) / 2, label(i, f, b - a), inks[cls], c.globalAlpha]);
  }
  c.globalAlpha = faint ? .75 : 1;
  drawSums(c, sums, y, h);
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  c.font = (h > 20 ? '12px' : '10px') + ' system-ui, "DejaVu Sans", sans-serif';
  for (const [at, text, ink, alpha] of labels) {
    if (!text) continue;
    c.globalAlpha = alpha;
    c.fillStyle = ink;
    c.fillText(text, at, y + h / 2 + .5);
  }
  c.globalAlpha = 1;
}

/* Draws firings narrower than a pixel: each pixel's classes are stacked, with heights
 * proportional to their time. */
function drawSums(c, sums, y, h) {
  const low = new Float32Array(width - GUTTER + 2);
  for (const [cls, sum] of sums) {
    c.fillStyle = colors[cls];
    c.beginPath();
    for (let p = 0; p < sum.length; p++) {
      if (!sum[p]) continue;
      const share = Math.min(sum[p], 1 - low[p]);
      if (share <= 0) continue;
      c.rect(GUTTER + p, y + h * (1 - low[p] - share), 1, h * share);
      low[p] += share;
    }
    c.fill();
  }
}

/* Draws a bar for the valid rows of each firing, with their number; within a pixel the largest. */
function drawValid(c, {f, index, longest}, y, h) {
  const scale = (width - GUTTER) / (view.to - view.from), low = y + h - 1;
  const bar = (px, w, n) => c.fillRect(GUTTER + px, low - (h - 14) * n / Math.max(mostRows, 1), w, (h - 14) * n / Math.max(mostRows, 1));
  const narrow = new Map();
  c.font = '10px system-ui, "DejaVu Sans", sans-serif';
  c.textAlign = 'center';
  c.textBaseline = 'alphabetic';
  for (let k = lowerBound(index, view.from - longest, (i) => f.start[i]); k < index.length; k++) {
    const i = index[k];
    if (f.start[i] > view.to) break;
    if (f.rows[i] < 0 || f.end[i] < view.from) continue;
    const a = Math.max((f.start[i] - view.from) * scale, 0), b = Math.min((f.end[i] - view.from) * scale, width - GUTTER);
    if (b - a < 1.5) {
      narrow.set(a | 0, Math.max(narrow.get(a | 0) || 0, f.rows[i]));
      continue;
    }
    c.globalAlpha = .5;
    c.fillStyle = colors[classOf(f.actor[i])];
    bar(a, b - a - (b - a > 6 ? 1 : 0), f.rows[i]);
    c.globalAlpha = 1;
    c.fillStyle = css.text;
    const text = String(f.rows[i]);
    if (b - a >= 6 * text.length + 2)
      c.fillText(text, GUTTER + (a + b) / 2, low - (h - 14) * f.rows[i] / Math.max(mostRows, 1) - 2);
  }
  c.globalAlpha = .5;
  c.fillStyle = css.accent;
  for (const [px, n] of narrow) bar(px, 1, n);
  c.globalAlpha = 1;
}

function drawIdle(c, p, y, h) {
  const scale = (width - GUTTER) / (view.to - view.from);
  let k = lowerBound(p.to, view.from, (t) => t);
  c.font = '10px system-ui, "DejaVu Sans", sans-serif';
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  const narrow = [[], []], inset = h > 16 ? 4 : 1;
  for (; k < p.count && p.from[k] < view.to; k++) {
    const a = Math.max((p.from[k] - view.from) * scale, 0), b = Math.min((p.to[k] - view.from) * scale, width - GUTTER);
    const credit = p.wait[k] === WAIT.credit;
    if (b - a < 1) {
      const list = narrow[+credit];
      if (list.length && list[list.length - 1] === (a | 0)) continue;
      list.push(a | 0);
      continue;
    }
    c.globalAlpha = matches && !matchRegs.has(p.reg[k]) ? .4 : 1;
    c.fillStyle = credit ? css.credit : css.idle;
    c.fillRect(GUTTER + a, y + inset, b - a, h - 2 * inset);
    if (b - a < 12 || h < 13) continue;
    c.fillStyle = css['idle-text'];
    const name = p.reg[k] >= 0 ? waitLetters[p.wait[k]] + ' ' + registers[p.reg[k]].name : waitLetters[p.wait[k]];
    c.fillText(b - a > 6.2 * name.length + 8 ? name : waitLetters[p.wait[k]], GUTTER + (a + b) / 2, y + h / 2 + .5);
  }
  c.globalAlpha = 1;
  narrow.forEach((list, credit) => {
    c.fillStyle = credit ? css.credit : css.idle;
    for (const px of list) c.fillRect(GUTTER + px, y + inset, 1, h - 2 * inset);
  });
}

/* Draws a curve as a filled step line, with the largest value of each pixel. */
function drawCurve(c, curve, top, y, h, color) {
  const {time: t, value: v} = curve, scale = (width - GUTTER) / (view.to - view.from);
  let k = Math.max(lowerBound(t, view.from, (a) => a) - 1, 0);
  const place = (value) => y + h - 1 - (h - 3) * Math.min(value / (top || 1), 1);
  c.beginPath();
  c.moveTo(GUTTER, y + h - 1);
  c.lineTo(GUTTER, place(v[k]));
  let last = v[k];
  for (k++; k < t.length && t[k] < view.to; k++) {
    const px = Math.floor((t[k] - view.from) * scale);
    let most = v[k], final = v[k];
    while (k + 1 < t.length && t[k + 1] < view.to && Math.floor((t[k + 1] - view.from) * scale) === px)
      final = v[++k], most = Math.max(most, final);
    const at = GUTTER + Math.max((t[k] - view.from) * scale, 0);
    c.lineTo(at, place(last));
    c.lineTo(at, place(most));
    if (final !== most) c.lineTo(at, place(final));
    last = final;
  }
  c.lineTo(width, place(last));
  c.lineTo(width, y + h - 1);
  c.closePath();
  c.globalAlpha = .22;
  c.fillStyle = color;
  c.fill();
  c.globalAlpha = 1;
  c.strokeStyle = color;
  c.lineWidth = 1.2;
  c.stroke();
}

function gutterText(c, text, y, strong, size) {
  c.font = (strong ? `600 ${size || 12}px` : '11px') + ' system-ui, "DejaVu Sans", sans-serif';
  c.fillStyle = strong ? css.text : css.faint;
  c.textAlign = 'left';
  c.textBaseline = 'middle';
  let shortened = text;
  while (shortened.length > 4 && c.measureText(shortened).width > GUTTER - 14) shortened = shortened.slice(0, -2) + '\u2026';
  c.fillText(shortened, 10, y);
}

const creditReg = (device) => {
  const list = creditChoices[device];
  return list.length ? list[creditShown[device] % list.length] : -1;
};

function drawRow(c, r) {
  const device = devices[r.device];
  if (r.kind === 'lane') {
    drawIdle(c, idle[r.device], r.y, r.h);
    drawLane(c, lanes[r.queue], r.y + 1, r.h - 2, 0, false);
  } else if (r.kind === 'replay') {
    const seen = steps.filter((s) => s.to > view.from && s.from < view.to);
    if (seen.length > 12) return;
    for (const s of seen) drawLane(c, replayLanes[r.queue], r.y + 1, r.h - 2, s.from - replaySpan.from, true);
  } else if (r.kind === 'queue') {
    drawLane(c, lanes[r.queue], r.y + 1, r.h - 2, 0, false);
  } else if (r.kind === 'valid') {
    drawValid(c, lanes[r.queue], r.y, r.h);
  } else if (r.kind === 'memory') {
    drawCurve(c, memory[r.device], Math.max(device.arena, memory[r.device].most), r.y, r.h, css.accent);
  } else {
    const reg = creditReg(r.device);
    drawCurve(c, slots[reg], registers[reg].quota, r.y, r.h, '#d55e00');
  }
}

function drawGutter(c) {
  c.fillStyle = css.back;
  c.fillRect(0, AXIS, GUTTER - 1, height);
  for (const r of rows) {
    const middle = r.y + r.h / 2 + .5;
    if (r.kind === 'lane') {
      const s = current >= 0 && steps[current].per[r.device], d = devices[r.device], both = r.h >= 26 && d.place;
      const name = d.name + (s ? `  ${(100 * s.busy / (s.to - s.from)).toFixed(0)} %` : '');
      const text = both || !d.place ? name : `${name}  ${d.place.replace('stage ', 's')}`;
      gutterText(c, text, both ? r.y + 9 : middle, true, Math.max(Math.min(r.h, 12), 8));
      if (both) gutterText(c, d.place, r.y + 22, false);
    } else if (r.kind === 'replay') gutterText(c, 'replay', middle, false);
    else if (r.kind === 'valid') gutterText(c, `rows, max ${mostRows}`, r.y + r.h - 8, false);
    else if (r.kind === 'queue') gutterText(c, queues[r.queue].name, middle, false);
    else if (r.kind === 'memory') {
      gutterText(c, 'memory in use', r.y + 10, false);
      gutterText(c, `${formatBytes(memory[r.device].most)} of ${formatBytes(Math.max(devices[r.device].arena, memory[r.device].most))}`, r.y + 24, false);
    } else {
      const g = registers[creditReg(r.device)];
      gutterText(c, g.name, r.y + 9, false);
      gutterText(c, `${slots[creditReg(r.device)].most} of ${g.quota} slots`, r.y + 22, false);
    }
  }
  c.fillStyle = css.rule;
  c.fillRect(GUTTER - 1, 0, 1, height);
}

function niceTick(span, most) {
  const raw = span / most, base = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * base).find((k) => k >= raw);
}

function drawAxis(c) {
  const origin = current >= 0 ? steps[current].from : 0;
  const tick = niceTick(view.to - view.from, Math.max((width - GUTTER) / 110, 1));
  c.font = '11px system-ui, "DejaVu Sans", sans-serif';
  c.textAlign = 'left';
  c.textBaseline = 'middle';
  for (let k = Math.ceil((view.from - origin) / tick); k * tick + origin < view.to; k++) {
    const px = x(k * tick + origin);
    c.fillStyle = css.rule;
    c.fillRect(px, 4, 1, height);
    c.fillStyle = css.faint;
    c.fillText(k ? format(k * tick) : '0', px + 4, 11);
  }
  for (const s of steps) {
    if (s.from < view.from || s.from > view.to || steps.length < 2) continue;
    c.fillStyle = css.text;
    c.globalAlpha = .3;
    c.fillRect(x(s.from), 0, 1, height);
    c.globalAlpha = 1;
  }
}

function outline(c, from, to, r, color) {
  const a = Math.max(x(from), GUTTER), b = Math.min(x(to), width);
  if (b < GUTTER || a > width) return;
  c.strokeStyle = color;
  c.lineWidth = 2;
  c.strokeRect(a, r.y, Math.max(b - a, 2), r.h);
}

function drawMarks(c) {
  const rowOf = (queue) => rows.find((r) => (r.kind === 'lane' || r.kind === 'queue') && r.queue === queue);
  if (selected >= 0) {
    const r = rowOf(actors[firings.actor[selected]].queue);
    if (r) outline(c, firings.start[selected], firings.end[selected], r, css.text);
  }
  if (pointed && pointed.row) outline(c, pointed.from, pointed.to, pointed.row, css.accent);
}

function drawOverview() {
  const w = overview.clientWidth, h = 26, c = prepare(overview, w, h);
  const scale = (w - GUTTER) / (end - begin);
  c.fillStyle = css.panel;
  c.fillRect(0, 0, w, h);
  c.font = '11px system-ui, "DejaVu Sans", sans-serif';
  c.textBaseline = 'middle';
  steps.forEach((s, i) => {
    const a = GUTTER + (s.from - begin) * scale, b = GUTTER + (s.to - begin) * scale;
    c.fillStyle = i === current ? css.accent : css.rule;
    c.fillRect(a, 5, Math.max(b - a - 1, .5), h - 10);
    if (b - a > 34) {
      c.fillStyle = i === current ? css.back : css.text;
      c.textAlign = 'center';
      c.fillText(String(s.step), (a + b) / 2, h / 2 + .5);
    }
  });
  c.fillStyle = css.faint;
  c.textAlign = 'left';
  c.fillText(`${steps.length} steps, ${format(end - begin)}`, 10, h / 2 + .5);
  c.strokeStyle = css.text;
  c.lineWidth = 1.5;
  c.strokeRect(GUTTER + (view.from - begin) * scale, 2, Math.max((view.to - view.from) * scale, 3), h - 4);
}

let waiting = false, frame = {count: 0, ms: 0};
function draw() {
  waiting = false;
  const began = performance.now();
  layOut();
  width = $('scroll').clientWidth;
  const c = prepare(lanesCanvas, width, Math.max(height, 40));
  c.save();
  c.beginPath();
  c.rect(GUTTER, 0, width - GUTTER, height);
  c.clip();
  drawAxis(c);
  const top = $('scroll').scrollTop, bottom = top + $('scroll').clientHeight;
  for (const r of rows) if (r.y + r.h >= top && r.y <= bottom) drawRow(c, r);
  drawMarks(c);
  c.restore();
  drawGutter(c);
  drawOverview();
  frame = {count: frame.count + 1, ms: performance.now() - began};
}
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}

/* ---- moving ------------------------------------------------------------------------- */

function setView(from, to) {
  const least = 20, span = Math.min(Math.max(to - from, least), (end - begin) * 1.1);
  from = Math.min(Math.max(from, begin - span * .5), end - span * .5);
  view.from = from;
  view.to = from + span;
  redraw();
}
function zoom(factor, at) {
  setView(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
const pan = (share) => setView(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function stepAt(ns) {
  let best = 0;
  steps.forEach((s, i) => { if (s.from <= ns) best = i; });
  return best;
}
function showStep(index) {
  if (!steps.length) return;
  current = Math.min(Math.max(index, -1), steps.length - 1);
  $('step').value = String(current);
  if (current < 0) setView(begin - (end - begin) * .01, end + (end - begin) * .01);
  else {
    const s = steps[current], margin = (s.to - s.from) * .015;
    setView(s.from - margin, s.to + margin);
  }
  fillTable();
}

/* ---- tips under the pointer ----------------------------------------------------------- */

function findFiring(lane, ns, slack) {
  const {f, index, longest} = lane;
  let best = -1, distance = slack;
  for (let k = lowerBound(index, ns - longest - slack, (i) => f.start[i]); k < index.length; k++) {
    const i = index[k];
    if (f.start[i] > ns + slack) break;
    const away = ns < f.start[i] ? f.start[i] - ns : ns > f.end[i] ? ns - f.end[i] : 0;
    if (away <= distance) best = i, distance = away;
    if (!away && f.end[i] > f.start[i]) break;
  }
  return best;
}

function findUnder(px, py) {
  const row = rows.find((r) => py >= r.y && py < r.y + r.h);
  if (!row || px < GUTTER) return row ? {row: null, gutter: row} : null;
  const ns = time(px), slack = 3 * (view.to - view.from) / (width - GUTTER);
  if (row.kind === 'lane' || row.kind === 'queue' || row.kind === 'valid') {
    const p = idle[row.device];
    if (row.kind === 'lane') {
      const k = lowerBound(p.to, ns, (t) => t);
      if (k < p.count && p.from[k] <= ns && (p.to[k] - p.from[k]) > slack / 3)
        return {row, idle: k, from: p.from[k], to: p.to[k]};
    }
    const i = findFiring(lanes[row.queue], ns, slack);
    return i < 0 ? null : {row, firing: i, from: firings.start[i], to: firings.end[i]};
  }
  return {row, ns, from: ns, to: ns};
}

const escapes = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'};
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => escapes[c]);
const producerOf = (reg) => registers[reg].producer >= 0 ? actors[registers[reg].producer].name : 'nobody';

function whyText(p, k) {
  const length = format(p.to[k] - p.from[k]), reg = p.reg[k];
  if (p.wait[k] === WAIT.input && reg >= 0)
    return `${length} for input: register <b>${escape(registers[reg].name)}</b> from <b>${escape(producerOf(reg))}</b>`;
  if (p.wait[k] === WAIT.credit && reg >= 0)
    return `${length} for credit: no free slot of register <b>${escape(registers[reg].name)}</b>, which has ${registers[reg].quota}`;
  const texts = {device: 'for its worker: it could have run, but the worker was busy, had no core or was not awake yet',
                 policy: 'held back by the plan\u2019s policy', start: 'for the start'};
  return `${length} ${texts[data.waits[p.wait[k]]] || data.waits[p.wait[k]]}`;
}
function firingText(i) {
  const a = actors[firings.actor[i]];
  return `${escape(a.name)}, microbatch ${firings.microbatch[i]}` + (data.pieces > 1 ? `, piece ${firings.piece[i]}` : '');
}
function valueAt(curve, ns) {
  return curve.value[Math.max(lowerBound(curve.time, ns + .5, (t) => t) - 1, 0)];
}

function tipText(u) {
  if (u.firing !== undefined) {
    const i = u.firing, a = actors[firings.actor[i]], waits = idleBefore.get(i) || [];
    const origin = current >= 0 ? steps[current].from : 0;
    return `<b>${firingText(i)}</b>` +
      `<p>${classNames[classOf(firings.actor[i])]}, step ${firings.step[i]}` +
      (a.stage >= 0 ? `, stage ${a.stage}` : '') + ` on ${escape(queues[a.queue].name)}</p>` +
      `<p>${format(firings.end[i] - firings.start[i])}, from ${format(firings.start[i] - origin)}` +
      (firings.rows[i] >= 0 ? `, ${firings.rows[i]} rows` : '') + '</p>' +
      (waits.length ? waits.map(([p, k]) => `<p class="faint">the device was idle ${whyText(p, k)}</p>`).join('')
                    : '<p class="faint">the queue did not wait for it</p>');
  }
  if (u.idle !== undefined) {
    const p = idle[u.row.device];
    return `<b>idle</b><p>${whyText(p, u.idle)}</p><p class="faint">then ran ${firingText(p.firing[u.idle])}</p>`;
  }
  if (u.row.kind === 'memory')
    return `<b>${formatBytes(valueAt(memory[u.row.device], u.ns))}</b> in use on ${escape(devices[u.row.device].name)}` +
      `<p class="faint">at most ${formatBytes(memory[u.row.device].most)} of ${formatBytes(devices[u.row.device].arena)} set aside</p>`;
  if (u.row.kind === 'credits') {
    const reg = creditReg(u.row.device);
    return `<b>${valueAt(slots[reg], u.ns)} of ${registers[reg].quota}</b> slots of ${escape(registers[reg].name)} in use` +
      `<p class="faint">made by ${escape(producerOf(reg))}; quota ${escape(registers[reg].knob)}; x or a click for another register</p>`;
  }
  return '<b>replay</b><p class="faint">the step on the virtual clock, with each actor\u2019s median duration and no wait for a core</p>';
}

function showTip(u, px, py) {
  const tip = $('tip');
  if (!u || u.gutter) {
    tip.hidden = true;
    return;
  }
  tip.innerHTML = tipText(u);
  tip.hidden = false;
  const box = document.querySelector('main').getBoundingClientRect();
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(Math.min(px + 14, box.width - w - 8), 4) + 'px';
  tip.style.top = (py + 18 + h > box.height ? Math.max(py - h - 12, 4) : py + 18) + 'px';
}

function pointAt(event) {
  const box = lanesCanvas.getBoundingClientRect(), main = document.querySelector('main').getBoundingClientRect();
  pointed = findUnder(event.clientX - box.left, event.clientY - box.top);
  showTip(pointed, event.clientX - main.left, event.clientY - main.top);
  redraw();
}

/* Moves the mark and the tip to the next firing of the same lane. */
function selectNext(by) {
  const start = selected >= 0 ? selected : pointed && pointed.firing;
  const queue = start >= 0 ? actors[firings.actor[start]].queue : rows.find((r) => r.kind === 'lane').queue;
  const {index} = lanes[queue];
  const middle = (view.from + view.to) / 2;
  let k = start >= 0 ? index.indexOf(start) + by : lowerBound(index, middle, (i) => firings.start[i]);
  k = Math.min(Math.max(k, 0), index.length - 1);
  select(index[k]);
}

function select(i) {
  selected = i;
  const a = firings.start[i], b = firings.end[i];
  if (a < view.from || b > view.to) {
    const span = Math.max(view.to - view.from, 2 * (b - a));
    setView((a + b) / 2 - span / 2, (a + b) / 2 + span / 2);
  }
  let r = rows.find((row) => row.kind !== 'replay' && row.queue === actors[firings.actor[i]].queue);
  if (!r) {
    shown.queues = true;
    setPressed();
    layOut();
    r = rows.find((row) => row.queue === actors[firings.actor[i]].queue);
  }
  const scroll = $('scroll');
  if (r.y < scroll.scrollTop || r.y + r.h > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = Math.max(r.y - 40, 0);
  draw();
  showTip({row: r, firing: i}, x((a + b) / 2), r.y + r.h - scroll.scrollTop + 26);
}

/* ---- search ---------------------------------------------------------------------------- */

function search(text) {
  text = text.trim().toLowerCase();
  matches = null;
  matchList = [];
  matchRegs = new Set();
  match = -1;
  $('found').textContent = '';
  if (text) {
    const only = /^m(\d+)$/.exec(text), found = actors.map((a) => a.name.toLowerCase().includes(text));
    registers.forEach((r, i) => { if (r.name.toLowerCase().includes(text)) matchRegs.add(i); });
    for (let i = 0; i < firings.count; i++) {
      const reg = (idleBefore.get(i) || []).some(([p, k]) => matchRegs.has(p.reg[k]));
      if (found[firings.actor[i]] || reg || (only && firings.microbatch[i] === +only[1])) matchList.push(i);
    }
    matches = new Set(matchList);
    $('found').textContent = matchList.length ? `${matchList.length} firings` : 'nothing';
  }
  redraw();
}
function nextMatch(by) {
  if (!matchList.length) return;
  if (match < 0) match = Math.max(lowerBound(matchList, view.from, (i) => firings.start[i]) % matchList.length, 0);
  else match = (match + by + matchList.length) % matchList.length;
  $('found').textContent = `${match + 1} of ${matchList.length}`;
  select(matchList[match]);
}

/* ---- the table --------------------------------------------------------------------------- */

function fillTable() {
  const chosen = current >= 0 ? [steps[current]] : steps;
  const names = data.waits.filter((w) => w !== 'none');
  const head = `<tr><th>${current >= 0 ? 'step ' + steps[current].step : 'all steps'}</th><th>span</th><th>busy</th>` +
    names.map((n) => `<th>${escape(n)}</th>`).join('') + '<th>other</th><th>peak memory</th><th class="bar"></th></tr>';
  const lines = devices.map((d, device) => {
    const sum = {span: 0, busy: 0, idle: names.map(() => 0)};
    for (const s of chosen) {
      const e = s.per[device];
      if (!e) continue;
      sum.span += e.to - e.from;
      sum.busy += e.busy;
      const p = idle[device];
      for (let k = lowerBound(p.to, e.from, (t) => t); k < p.count && p.from[k] < e.to; k++)
        sum.idle[names.indexOf(data.waits[p.wait[k]])] += Math.min(p.to[k], e.to) - Math.max(p.from[k], e.from);
    }
    const other = sum.span - sum.busy - sum.idle.reduce((a, b) => a + b, 0);
    const share = (ns) => sum.span ? `${(100 * ns / sum.span).toFixed(1)} %` : '';
    const shades = {input: '#9a9a9a', credit: '#d55e00', device: '#5a5a5a', policy: '#cc79a7', start: '#c9c9c9'};
    const bar = [[sum.busy, colors.F], ...names.map((n, i) => [sum.idle[i], shades[n] || '#777']), [Math.max(other, 0), colors.U]]
      .map(([ns, color]) => `<i style="width:${sum.span ? 100 * ns / sum.span : 0}%;background:${color}"></i>`).join('');
    return `<tr><td>${escape(d.name)}${d.place ? ` <span class="faint">${escape(d.place)}</span>` : ''}</td><td>${format(sum.span / chosen.length)}</td><td>${share(sum.busy)}</td>` +
      sum.idle.map((ns) => `<td>${share(ns)}</td>`).join('') +
      `<td>${share(other)}</td><td>${formatBytes(memory[device].most)}</td><td class="bar">${bar}</td></tr>`;
  });
  $('table').innerHTML = head + lines.join('');
}

/* ---- counters of steps ------------------------------------------------------------------- */

const total = (list) => list.reduce((a, b) => a + b, 0);
const count = (n) => Number.isInteger(n) ? n.toLocaleString('en') : n.toPrecision(4);
const fraction = (part, all) => all ? `${(100 * part / all).toFixed(1)} %` : '';

/* Draws a bar for each count, with the dropped part on top. */
function strip(values, dropped, word) {
  const most = Math.max(...values, 1e-30);
  const bars = values.map((n, i) => {
    const off = dropped ? dropped[i] : 0, share = n ? 100 * off / n : 0;
    const title = `${word} ${i}: ${count(n)}` + (dropped ? `, ${count(off)} dropped` : '');
    return `<i title="${escape(title)}" style="height:${Math.max(100 * n / most, 0)}%` +
      (off ? `;background:linear-gradient(#d55e00 ${share}%,#0072b2 ${share}%)` : '') + '"></i>';
  });
  return `<span>${bars.join('')}</span>`;
}

/* Fills in the counters. NAME.load and NAME.dropped of one block's experts share a line. */
function fillTallies() {
  const byName = new Map(data.tallies.map(([name, sum, last]) => [name, {name, sum, last}]));
  const lines = [];
  for (const t of byName.values()) {
    if (t.name.endsWith('.dropped') && byName.has(t.name.replace(/dropped$/, 'load'))) continue;
    const load = t.name.endsWith('.load'), dropped = load && byName.get(t.name.replace(/load$/, 'dropped'));
    const busiest = (list) => total(list) ? (Math.max(...list) * list.length / total(list)).toFixed(2) : '';
    lines.push(`<tr><td>${escape(load ? t.name.replace(/\.load$/, '') : t.name)}</td><td>${count(total(t.sum))}</td>` +
      `<td>${busiest(t.sum)}</td><td>${busiest(t.last)}</td>` +
      `<td>${dropped ? fraction(total(dropped.sum), total(t.sum)) : ''}</td>` +
      `<td class="strip">${strip(t.sum, dropped && dropped.sum, load ? 'expert' : 'element')}</td></tr>`);
  }
  $('tallies').innerHTML = '<tr><th>counted in all steps</th><th>rows</th><th>busiest / mean</th><th>in the last step</th>' +
    '<th>dropped</th><th class="strip"></th></tr>' + lines.join('');
}
function showTallies(yes) {
  $('tallies').hidden = !yes;
  $('toggle-tallies').setAttribute('aria-pressed', String(yes));
  redraw();
}

/* ---- events -------------------------------------------------------------------------------- */

function setPressed() {
  for (const name of Object.keys(shown)) $('toggle-' + name).setAttribute('aria-pressed', String(shown[name]));
}
function toggle(name) {
  shown[name] = !shown[name];
  setPressed();
  redraw();
}
function nextCredits(device) {
  if (creditChoices[device].length) creditShown[device] = (creditShown[device] + 1) % creditChoices[device].length;
  redraw();
}

let drag = null;
lanesCanvas.addEventListener('pointerdown', (e) => {
  drag = {x: e.clientX, y: e.clientY, from: view.from, to: view.to, scroll: $('scroll').scrollTop, moved: false};
  lanesCanvas.setPointerCapture(e.pointerId);
});
lanesCanvas.addEventListener('pointermove', (e) => {
  if (!drag) return pointAt(e);
  const by = e.clientX - drag.x;
  if (Math.abs(by) + Math.abs(e.clientY - drag.y) > 3) drag.moved = true;
  if (!drag.moved) return;
  lanesCanvas.classList.add('drag');
  $('tip').hidden = true;
  const span = drag.to - drag.from, shift = by / (width - GUTTER) * span;
  setView(drag.from - shift, drag.to - shift);
  $('scroll').scrollTop = drag.scroll - (e.clientY - drag.y);
});
lanesCanvas.addEventListener('pointerup', (e) => {
  const clicked = drag && !drag.moved;
  drag = null;
  lanesCanvas.classList.remove('drag');
  if (!clicked) return;
  pointAt(e);
  const row = pointed && (pointed.row || pointed.gutter);
  if (row && row.kind === 'credits') nextCredits(row.device);
  selected = pointed && pointed.firing !== undefined ? pointed.firing : -1;
  redraw();
});
lanesCanvas.addEventListener('pointerleave', () => {
  pointed = null;
  $('tip').hidden = true;
  redraw();
});
lanesCanvas.addEventListener('dblclick', () => {
  if (!pointed || !pointed.row || pointed.to <= pointed.from) return;
  const margin = (pointed.to - pointed.from) * .6;
  setView(pointed.from - margin, pointed.to + margin);
});
lanesCanvas.addEventListener('wheel', (e) => {
  if (e.shiftKey) {
    $('scroll').scrollTop += e.deltaY;
    return e.preventDefault();
  }
  e.preventDefault();
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) return pan(e.deltaX / (width - GUTTER));
  const box = lanesCanvas.getBoundingClientRect();
  zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), time(Math.max(e.clientX - box.left, GUTTER)));
}, {passive: false});
overview.addEventListener('pointerdown', (e) => {
  const box = overview.getBoundingClientRect();
  const ns = (e.clientX - box.left - GUTTER) / (box.width - GUTTER) * (end - begin) + begin;
  const hit = steps.findIndex((s) => s.from <= ns && ns < s.to);
  if (hit >= 0) showStep(hit);
});
$('scroll').addEventListener('scroll', redraw);

const keys = {
  ArrowLeft: () => pan(-.15), ArrowRight: () => pan(.15),
  ArrowUp: () => { $('scroll').scrollTop -= 40; }, ArrowDown: () => { $('scroll').scrollTop += 40; },
  '+': () => zoom(.7, (view.from + view.to) / 2), '=': () => zoom(.7, (view.from + view.to) / 2),
  '-': () => zoom(1 / .7, (view.from + view.to) / 2),
  '[': () => showStep(Math.max((current < 0 ? stepAt(view.from) : current) - 1, 0)),
  ']': () => showStep((current < 0 ? stepAt(view.from) - 1 : current) + 1),
  0: () => showStep(-1),
  q: () => toggle('queues'), v: () => { if (mostRows >= 0) toggle('valid'); }, m: () => toggle('memory'), c: () => toggle('credits'), r: () => toggle('replay'),
  t: () => { if (data.tallies.length) showTallies($('tallies').hidden); },
  x: () => (pointed && (pointed.row || pointed.gutter) ? nextCredits((pointed.row || pointed.gutter).device)
                                                       : devices.forEach((d, i) => nextCredits(i))),
  '/': () => $('search').focus(),
  '?': () => $('help').showModal(),
  Escape: () => { selected = -1; $('tip').hidden = true; $('search').value = ''; search(''); },
};
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('help').open) return;
  if (e.target === $('search')) {
    if (e.key === 'Enter') nextMatch(e.shiftKey ? -1 : 1);
    else if (e.key === 'Escape') { keys.Escape(); lanesCanvas.focus(); }
    return;
  }
  if (e.key === 'Tab' && e.target === lanesCanvas) {
    e.preventDefault();
    return selectNext(e.shiftKey ? -1 : 1);
  }
  if (e.target.tagName === 'SELECT' || (e.target.tagName === 'BUTTON' && e.key === ' ')) return;
  const action = keys[e.key];
  if (!action) return;
  e.preventDefault();
  action();
});
$('search').addEventListener('input', () => search($('search').value));
$('step').addEventListener('change', () => showStep(+$('step').value));
$('previous').addEventListener('click', keys['[']);
$('next').addEventListener('click', keys[']']);
$('all').addEventListener('click', keys[0]);
$('help-button').addEventListener('click', keys['?']);
$('toggle-tallies').addEventListener('click', keys.t);
for (const name of Object.keys(shown)) $('toggle-' + name).addEventListener('click', () => toggle(name));
window.addEventListener('resize', redraw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); redraw(); });

/* ---- beginning -------------------------------------------------------------------------------- */

document.title = data.name;
$('name').textContent = data.name;
const notes = [];
if (data.truncated) notes.push('The trace is truncated: its newest firings are missing.');
if (data.damaged) notes.push('The trace is damaged: some firings are missing, and others may be wrong.');
if (data.dropped) notes.push(`The ${data.dropped} oldest firings did not fit into the trace.`);
if (!firings.count) notes.push('The trace has no firings.');
$('note').textContent = notes.join(' ');
$('note').hidden = !notes.length;
$('step').innerHTML = '<option value="-1">all steps</option>' +
  steps.map((s, i) => `<option value="${i}">step ${s.step}: ${format(s.to - s.from)}</option>`).join('');
const used = new Set();
for (let i = 0; i < firings.count; i++) used.add(classOf(firings.actor[i]));
const waited = new Set();
idle.forEach((p) => { for (let i = 0; i < p.count; i++) waited.add(data.waits[p.wait[i]]); });
$('legend').innerHTML = [...data.classes].filter((l) => used.has(l))
  .map((l) => `<span><b style="background:${colors[l]};color:${inks[l]}">${l}</b>${escape(classNames[l])}</span>`).join('') +
  (waited.size ? '<span>idle:</span>' : '') + data.waits.filter((w) => waited.has(w))
  .map((w) => `<span><b class="${w === 'credit' ? 'credit' : 'idle'}">${w[0]}</b>${waitNames[w] || escape(w)}</span>`).join('');
if (!replay.count) $('toggle-replay').hidden = true;
if (mostRows < 0) $('toggle-valid').hidden = true;
if (data.tallies.length) {
  fillTallies();
  $('tallies').hidden = $('toggle-tallies').hidden = false;
}
document.body.classList.toggle('many', !few);
readColors();
setPressed();
layOut();
width = $('scroll').clientWidth;
showStep(steps.length > 1 ? Math.min(1, steps.length - 1) : steps.length - 1);
if (!steps.length) { fillTable(); redraw(); }

/* Interface for programs that control the page. */
window.trace = {
  get state() {
    return {view: {...view}, current, shown: {...shown}, selected, matches: matchList.length, match, frame,
            rows: rows.map((r) => ({...r})), tip: $('tip').hidden ? '' : $('tip').textContent, width, gutter: GUTTER};
  },
  firings, actors, registers, devices, steps, idle, select, draw, setView,
};
})();
