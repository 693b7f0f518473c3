// Undoes what data.py and compact.py did: strings, columns, curves.
const raw = JSON.parse($("data").textContent);
const report = raw.report;

const strings = (({ shared, rest }) => {
  let last = "";
  return rest.map((tail, i) => (last = last.slice(0, shared[i]) + tail));
})(raw.strings);

const CAUSE_EVENT = 2; // in tasks.py: start, stream, event, resource

const summed = (steps) => {
  const found = new Float64Array(steps.length);
  let at = 0;
  for (let i = 0; i < steps.length; i += 1) found[i] = at += steps[i];
  return found;
};

// Rows of different lengths: `of(i)` gives row i.
const ragged = ({ lengths, values }) => {
  const ends = summed(lengths);
  return (i) => values.slice(ends[i] - lengths[i], ends[i]);
};

const tasks = { ...raw.tasks, count: raw.tasks.id.length };
tasks.readsOf = ragged(tasks.reads);
tasks.writesOf = ragged(tasks.writes);

// Lanes are runs of tasks on one stream of one card; within them starts and ends ascend.
const lanes = [];
tasks.start = new Float64Array(tasks.count);
tasks.end = new Float64Array(tasks.count);
tasks.lane = new Int32Array(tasks.count);
for (let i = 0, at = 0; i < tasks.count; i += 1) {
  const rank = tasks.rank[i], stream = tasks.stream[i], open = lanes[lanes.length - 1];
  if (!open || open.rank !== rank || open.stream !== stream) {
    lanes.push({ rank, stream, first: i, last: i, busy: 0 });
    at = 0;
  }
  const lane = lanes[lanes.length - 1];
  tasks.start[i] = at += tasks.gap[i];
  tasks.end[i] = at += tasks.dur[i];
  tasks.lane[i] = lanes.length - 1;
  lane.last = i + 1;
  lane.busy += tasks.dur[i];
}
const ranks = [...new Set(lanes.map((lane) => lane.rank))];
const makespan = Math.max(1, raw.makespan);

// Cards that run the same at the same times, in groups: one of them stands for all (`folds`).
const likes = (() => {
  const running = new Map(ranks.map((rank) => [rank, []]));
  for (const { rank, stream, first, last } of lanes) {
    const row = [stream];
    for (let i = first; i < last; i += 1) row.push(tasks.gap[i], tasks.dur[i], tasks.type[i]);
    running.get(rank).push(row.join());
  }
  const groups = new Map();
  for (const [rank, rows] of running) {
    const key = rows.join(";");
    groups.set(key, [...(groups.get(key) ?? []), rank]);
  }
  const of = new Map();
  for (const group of groups.values()) group.forEach((rank) => of.set(rank, group));
  return of;
})();
const alike = ranks.length > new Set(likes.values()).size;

tasks.critical = new Uint8Array(tasks.count);
for (const i of raw.critical) tasks.critical[i] = 1;

const fusedRow = new Map(tasks.fused_at.map((task, row) => [task, row]));
const fusedOf = ragged(tasks.fused);
const linksOf = new Map();
tasks.link_at.forEach((task, row) => {
  if (!linksOf.has(task)) linksOf.set(task, []);
  linksOf.get(task).push([strings[tasks.link[row]], tasks.link_bytes[row]]);
});

// Parts of collectives: the parts of each, by card, and for whom a part waited within its run.
const teams = new Map(), teamRow = new Map();
tasks.team_at.forEach((task, row) => {
  teamRow.set(task, row);
  if (!teams.has(tasks.team[row])) teams.set(tasks.team[row], []);
  teams.get(tasks.team[row]).push(task);
});

const events = { ...raw.events, count: raw.events.from.length };
events.tensorsOf = ragged(events.tensors);
const eventBetween = new Map();
const eventsTo = new Map(); // how many waits a task has
for (let i = 0; i < events.count; i += 1) {
  eventBetween.set(`${events.from[i]} ${events.to[i]}`, i);
  eventsTo.set(events.to[i], (eventsTo.get(events.to[i]) ?? 0) + 1);
}

// What waited last for a task: tasks by the task that released them.
const releasedBy = new Map();
tasks.waited.forEach((cause, task) => {
  if (cause < 0) return;
  if (!releasedBy.has(cause)) releasedBy.set(cause, []);
  releasedBy.get(cause).push(task);
});

// A curve: times, values from each time on, and the area before each time.
const makeCurve = (times, values) => {
  const area = new Float64Array(times.length);
  for (let i = 1; i < times.length; i += 1) {
    area[i] = area[i - 1] + values[i - 1] * (times[i] - times[i - 1]);
  }
  return { times, values, area };
};

const curveTimes = raw.curves.times.map(summed);
const curves = raw.curves.usage.map((usage) => ({
  ...usage,
  ...makeCurve(curveTimes[usage.times], Float64Array.from(usage.parts, (p) => p / 1000)),
}));
for (const found of raw.curves.memory) {
  const used = summed(found.bytes);
  const peak = used.reduce((a, b) => Math.max(a, b), 0);
  curves.push({
    resource: "memory", rank: found.rank, peak, unit: "bytes",
    ...makeCurve(curveTimes[found.times], used.map((b) => (peak ? b / peak : 0))),
  });
}
const capacityOf = (name, rank) => {
  const curve = curves.find((c) => c.resource === name && (c.rank === rank || c.rank < 0));
  return curve && curve.capacity > 0 ? curve.capacity : 0;
};

const single = raw.single && { ...raw.single, count: raw.single.dur.length };
if (single) {
  single.start = new Float64Array(single.count);
  single.end = new Float64Array(single.count);
  for (let i = 0, at = 0; i < single.count; i += 1) {
    single.start[i] = at += single.gap[i];
    single.end[i] = at += single.dur[i];
  }
}

const nameOf = (i) => strings[tasks.name[i]];
// The path without what only repeats the type: /layers.3/mlp/down_proj of .../MatMul.
const shortName = (i) => {
  const parts = nameOf(i).split("/").filter(Boolean);
  while (parts.length > 1 && parts[parts.length - 1].startsWith(typeOf(i))) parts.pop();
  return parts.join("/");
};
const tailName = (i) => {
  const parts = nameOf(i).split("/").filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : nameOf(i);
};
const typeOf = (i) => strings[tasks.type[i]];
const boundOf = (i) => strings[tasks.bound[i]];
const laneNames = new Map(raw.lanes.map(([rank, stream, name]) => [`${rank} ${stream}`, name]));
const streamText = ({ rank, stream }) => laneNames.get(`${rank} ${stream}`) ?? say("streamOf", stream);
const laneText = (lane) =>
  (ranks.length > 1 ? say("cardLane", lane.rank, streamText(lane)) : streamText(lane));

// 0, 1, 2, 5 as 0–2, 5.
const runsText = (numbers) => {
  const runs = [];
  for (const n of numbers) {
    const run = runs[runs.length - 1];
    if (run && n === run[1] + 1) run[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
};
const cardsText = (cards) => (cards.length > 1 ? say("cardsOf", runsText(cards)) : say("cardOf", cards[0]));
