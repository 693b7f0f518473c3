// At the top: the figures, and what binds, what waits, what to change.
const us = (value) => duration(value * 1000);
const tile = (term, value, note) =>
  make("div", { class: "tile" }, make("dt", { text: term }),
    make("dd", { class: "value", text: value }), make("dd", { class: "note", text: note ?? "", title: note ?? "" }));

const strategyText = ({ strategy, chosen }) =>
  chosen === strategy ? chosen : `${strategy}: ${chosen}`;

const showTiles = () => {
  const found = report;
  if (!found) {
    fill($("tiles"),
      tile(say("time"), duration(raw.makespan), ""),
      tile(say("tasks"), whole(tasks.count), say("tasksNote", lanes.length)),
      tile(say("overlap"), percent(raw.facts.overlap), say("overlapNote")));
    return;
  }
  const { schedule, streams, sync, resources } = found;
  const gap = schedule.makespan_us > 0 ? 1 - schedule.lower_bound_us / schedule.makespan_us : 0;
  const how = streams.chosen;
  fill($("tiles"),
    tile(say("time"), us(schedule.makespan_us),
      streams.used === 1 ? say("onOneStream", how) : say("onStreams", streams.used, how)),
    tile(say("speedup"), `${schedule.speedup.toFixed(2)}×`, say("ofSingle", us(schedule.single_stream_us))),
    tile(say("bound"), us(schedule.lower_bound_us),
      say("gapOf", boundText(schedule), percent(Math.max(0, gap)))),
    tile(say("overlap"), percent(schedule.overlap), say("overlapNote")),
    tile(say("syncs"), whole(sync.events), say("syncNote", whole(sync.cross_stream_dependencies))),
    tile(say("memory"), bytesText(resources.peak_memory_bytes),
      say("memoryOf", bytesText(raw.curves.memory_limit))));
};

const answer = (id, title, ...children) =>
  make("div", { class: "answer", id }, make("h3", { text: title }), ...children);

const bindsAnswer = () => {
  const { busy, idle } = raw.facts, sum = busy.reduce((a, [, t]) => a + t, 0) || 1;
  const stack = make("div", { class: "stack" }, ...busy.map(([name, time]) => {
    const part = make("div", {});
    part.style.width = `${(100 * time) / sum}%`;
    part.style.background = boundColour(name);
    return part;
  }));
  const keys = make("div", { class: "keys" }, ...busy.filter(([, t]) => t / sum >= 0.005).map(([name, time]) =>
    make("span", {}, swatch(boundColour(name)), `${resourceText(name)} ${percent(time / sum)}`)));
  const lines = [];
  if (busy.length && busy[0][1] > 0) lines.push(say("bindsMost", resourceText(busy[0][0]), percent(busy[0][1] / sum)));
  if (idle / makespan >= 0.005) lines.push(say("bindsIdle", percent(idle / makespan), duration(idle)));
  if (report && report.schedule.lower_bound_us > 0) {
    lines.push(say("bindsBound", us(report.schedule.lower_bound_us), boundText(report.schedule)));
  }
  return answer("binds", say("binds"), stack, keys, make("ul", {}, ...lines.map((text) => make("li", { text }))));
};

// Waits that differ only by numbers, as those of a model's layers do, count together.
const waitGroups = (most) => {
  const found = new Map(), plain = (i) => (i < 0 ? "" : nameOf(i).replace(/\d+/g, "#"));
  for (let i = 0; i < tasks.count; i += 1) {
    if (tasks.cause[i] !== CAUSE_EVENT || tasks.wait[i] <= 0) continue;
    if (likes.get(tasks.rank[i])[0] !== tasks.rank[i]) continue; // one that runs the same is counted
    const key = JSON.stringify([tasks.rank[i], tasks.stream[i], plain(i), plain(tasks.waited[i])]);
    if (!found.has(key)) found.set(key, { longest: i, count: 0, sum: 0 });
    const group = found.get(key);
    group.count += 1;
    group.sum += tasks.wait[i];
    if (tasks.wait[i] > tasks.wait[group.longest]) group.longest = i;
  }
  return [...found.values()].sort((a, b) => b.sum - a.sum || a.longest - b.longest).slice(0, most);
};

const lanesText = (lane) =>
  (ranks.length > 1 ? `${cardsText(likes.get(lane.rank))} ${streamText(lane)}` : streamText(lane));

const waitLine = ({ longest, count, sum }) => {
  const cause = tasks.waited[longest], mark = "\u0001";
  const text = say("waitsOne", duration(sum), whole(count), lanesText(lanes[tasks.lane[longest]]), mark, mark);
  const [head, middle, tail] = text.split(mark);
  return make("li", {}, head, taskLink(longest, tailName(longest)), middle,
    cause < 0 ? "?" : taskLink(cause, tailName(cause)), tail ?? "");
};

const waitsAnswer = () => {
  const { event_waits: count, event_wait: sum } = raw.facts;
  if (!count) return answer("waits", say("waits"), make("p", { text: say("waitsNone") }));
  return answer("waits", say("waits"), make("p", { text: say("waitsSum", whole(count), duration(sum)) }),
    make("ul", {}, ...waitGroups(3).map(waitLine)));
};

const changeAnswer = () => {
  const lines = (raw.advice[state.lang] ?? raw.advice.en ?? []).map((text) => make("li", { text }));
  const broken = report?.verification.findings.length ?? 0, warned = report?.warnings.length ?? 0;
  if (broken) lines.unshift(make("li", { class: "badge bad", text: say("notSafe") }));
  if (warned) {
    lines.push(make("li", {}, make("button", {
      type: "button", class: "link", click: () => $("warnings").scrollIntoView(),
      text: warned === 1 ? say("changeWarning") : say("changeWarnings", warned),
    })));
  }
  if (!report && !lines.length) return null; // a recorded run: nothing is known of its graph
  return answer("change", say("change"), lines.length
    ? make("ul", {}, ...lines) : make("p", { text: say("changeNone") }));
};

const showSummary = () => {
  $("title").textContent = raw.title;
  const sizes = Object.entries(report?.model.sizes ?? {}).map(([name, size]) => `${name} ${size}`);
  const ops = report ? say("opsCount", whole(report.model.ops_imported), whole(tasks.count)) : "";
  $("subtitle").textContent = [raw.device, ...sizes, ops].filter(Boolean).join(" · ");
  showTiles();
  fill($("answers"), bindsAnswer(), waitsAnswer(), changeAnswer());
  const measured = report?.durations;
  $("foot").textContent = say("foot", raw.version) + (report ? say("simulated") : "") +
    (measured ? say("measured", percent(measured.measured_share_of_time), measured.file) : "");
};
