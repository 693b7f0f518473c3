// Keys. On the timeline all of them; elsewhere on the page only / and ?.
const KEYS = [
  [["W", "S", "↑", "↓", "+", "−"], "keyZoom"], [["A", "D", "←", "→"], "keyPan"],
  [["0", "Home"], "keyFit"], [[",", "."], "keyStep"], [["[", "]"], "keyFollow"],
  [["F", "Enter"], "keyFocus"], [["/"], "keySearch"], [["C", "X", "G"], "keyToggles"],
  [["Esc"], "keyEscape"], [["?"], "keyHelp"],
];

const firstInView = () => {
  let found = -1;
  for (const lane of rows.map((n) => lanes[n])) {
    const i = firstEnding(tasks.end, lane.first, lane.last, state.from);
    if (i < lane.last && (found < 0 || tasks.start[i] < tasks.start[found])) found = i;
  }
  return found;
};

const step = (by) => {
  const i = state.picked;
  if (i < 0) return pick(firstInView());
  const lane = lanes[tasks.lane[i]];
  return i + by >= lane.first && i + by < lane.last ? pick(i + by) : undefined;
};

const follow = (back) => {
  const i = state.picked;
  if (i < 0) return;
  const next = back ? tasks.waited[i] : releasedBy.get(i)?.[0] ?? -1;
  if (next >= 0) pick(next);
};

const toggle = (name) => {
  state[name] = !state[name];
  $(name).setAttribute("aria-pressed", String(state[name]));
  if (name === "folds") arrange();
  changed("look");
};

const showHelp = () => {
  fill($("keys"), ...KEYS.flatMap(([keys, text]) => [
    make("dt", {}, ...keys.flatMap((key) => [make("kbd", { text: key }), " "])),
    make("dd", { text: say(text) }),
  ]));
  $("help").showModal();
};

const STAGE_KEYS = {
  w: () => zoom(1.5), s: () => zoom(1 / 1.5), ArrowUp: () => zoom(1.5), ArrowDown: () => zoom(1 / 1.5),
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), _: () => zoom(1 / 1.5),
  a: () => pan(-0.2), d: () => pan(0.2), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
  0: () => setView(0, makespan), Home: () => setView(0, makespan),
  ",": () => step(-1), ".": () => step(1), "[": () => follow(true), "]": () => follow(false),
  f: () => state.picked >= 0 && reveal(state.picked, true),
  Enter: () => (state.picked >= 0 ? reveal(state.picked, true) : step(1)),
  c: () => toggle("critical"), x: () => toggle("arrows"), g: () => alike && toggle("folds"),
  Escape: () => {
    if (state.query) setQuery("");
    pick(-1);
  },
};

const watchKeys = () => {
  $("stage").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!Object.hasOwn(STAGE_KEYS, key)) return;
    event.preventDefault();
    hideTip();
    STAGE_KEYS[key]();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (event.key === "/") {
      event.preventDefault();
      $("find").focus();
      $("find").select();
    } else if (event.key === "?") {
      showHelp();
    }
  });
};

const setQuery = (text) => {
  for (const id of ["find", "table-find"]) if ($(id).value !== text) $(id).value = text;
  search(text);
};

const watchSearch = () => {
  for (const id of ["find", "table-find"]) {
    $(id).addEventListener("input", () => setQuery($(id).value));
    $(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") setQuery("");
    });
  }
};
