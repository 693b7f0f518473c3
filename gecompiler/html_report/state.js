// What is on the screen: the part of time in view, what is picked and searched, and who redraws.
const state = {
  lang: raw.lang, theme: "light", from: 0, to: makespan, picked: -1, query: "", matches: null,
  matchCount: 0, colour: "bound", card: ranks[0] ?? 0, critical: true, arrows: true,
  folds: true,
};
const SHORTEST_VIEW = Math.min(50, makespan); // ns
const GUTTER = ranks.length > 1 || raw.lanes.length ? 126 : 104; // px left of the plots, for labels

// Which lanes are shown, from the top, and the row of each lane: cards that are alike share theirs.
const rows = [], rowOf = new Int32Array(lanes.length);
const arrange = () => {
  rows.length = 0;
  const place = new Map();
  lanes.forEach((lane, n) => {
    const key = `${state.folds ? likes.get(lane.rank)[0] : lane.rank} ${lane.stream}`;
    if (!place.has(key)) place.set(key, rows.push(n) - 1);
    rowOf[n] = place.get(key);
  });
};
arrange();
const cardsOf = (lane) => (state.folds ? likes.get(lane.rank) : [lane.rank]);

const say = (key, ...values) =>
  (TEXTS[state.lang][key] ?? TEXTS.en[key] ?? key).replace(/\{(\d)\}/g, (_, n) => values[n] ?? "");

// What the compiler said in English, in the reader's language where there is a text in it.
const told = (text) => raw.told?.[state.lang]?.[text] ?? text;

const resourceText = (name) => {
  if (!name) return say("none");
  return Object.hasOwn(RESOURCES, name) ? say(RESOURCES[name]) : name;
};
// What the lower bound is about: chains may be the longer for a resource that alone bounds less.
const boundText = ({ binding_resource: name, bounds }) => {
  const chains = !Object.hasOwn(BOUNDS, name) && (bounds[name] ?? 0) < Math.max(0, ...Object.values(bounds));
  return chains ? say("chainsAnd", resourceText(name)) : resourceText(name);
};
const BOUNDS = { events: 1, streams: 1, critical_path: 1, fixed: 1 };
const RESOURCES = {
  cube: "cube", vector: "vector", hbm: "hbm", l2: "l2", fixed: "fixed", peers: "peers",
  events: "events", streams: "streams_", critical_path: "critical_path",
};

const listeners = { view: [], pick: [], search: [], look: [] };
const on = (what, act) => what.split(" ").forEach((name) => listeners[name].push(act));
const changed = (what) => listeners[what].forEach((act) => act());

const setView = (from, to) => {
  const length = Math.min(makespan, Math.max(SHORTEST_VIEW, to - from));
  const start = Math.max(0, Math.min(makespan - length, from));
  if (start === state.from && start + length === state.to) return false;
  [state.from, state.to] = [start, start + length];
  changed("view");
  return true;
};

const zoom = (factor, anchor = (state.from + state.to) / 2) =>
  setView(anchor - (anchor - state.from) / factor, anchor + (state.to - anchor) / factor);

const pan = (part) => {
  const step = (state.to - state.from) * part;
  return setView(Math.max(0, Math.min(makespan - (state.to - state.from), state.from + step)),
    Math.max(0, Math.min(makespan - (state.to - state.from), state.from + step)) + state.to - state.from);
};

// Brings a task into view: where it is too narrow to see, closer as well.
const reveal = (i, close = false) => {
  const length = state.to - state.from, own = Math.max(1, tasks.dur[i]);
  const middle = (tasks.start[i] + tasks.end[i]) / 2;
  if (close || own > length) setView(middle - own * 2.5, middle + own * 2.5);
  else if (own < length / 400) setView(middle - own * 30, middle + own * 30);
  else if (tasks.start[i] < state.from || tasks.end[i] > state.to) {
    setView(middle - length / 2, middle + length / 2);
  }
};

const pick = (i, show = true) => {
  state.picked = i;
  if (i >= 0 && show) reveal(i);
  changed("pick");
};

const search = (text) => {
  state.query = text;
  const wanted = text.trim().toLowerCase();
  state.matches = null;
  state.matchCount = tasks.count;
  if (wanted) {
    const hit = strings.map((s) => s.toLowerCase().includes(wanted));
    state.matches = new Uint8Array(tasks.count);
    state.matchCount = 0;
    for (let i = 0; i < tasks.count; i += 1) {
      if (hit[tasks.name[i]] || hit[tasks.type[i]] || hit[tasks.group[i]]) {
        state.matches[i] = 1;
        state.matchCount += 1;
      }
    }
  }
  changed("search");
};

// The match after the picked task in the order of time, or before it; round at the ends.
const nextMatch = (step) => {
  if (!state.matches || !state.matchCount) return;
  const order = [];
  for (let i = 0; i < tasks.count; i += 1) if (state.matches[i]) order.push(i);
  order.sort((a, b) => tasks.start[a] - tasks.start[b] || a - b);
  const at = order.indexOf(state.picked);
  const next = at < 0 ? (step > 0 ? 0 : order.length - 1) : (at + step + order.length) % order.length;
  pick(order[next]);
};
