// What is known of the picked op: what it does, what it uses, whom it waited for and why.
const MOST_ROWS = 12;

const taskLink = (i, text = nameOf(i)) =>
  make("button", { type: "button", class: "link", text, click: () => pick(i) });

const listOf = (title, rows, most = MOST_ROWS) => {
  if (!rows.length) return [];
  const items = rows.slice(0, most).map((row) => make("li", {}, row));
  if (rows.length > most) items.push(make("li", { class: "quiet", text: say("more", rows.length - most) }));
  return [make("h4", { text: title }), make("ul", {}, ...items)];
};

const tensorText = (t) => {
  const type = strings[tasks.tensor_type[t]], size = tasks.tensor_bytes[t];
  return [strings[tasks.tensor[t]], type, size >= 0 ? bytesText(size) : ""].filter(Boolean).join("  ");
};

// [resource, share of what the device could do in the time that the task takes]
const sharesOf = (i) => {
  const us = tasks.dur[i] / 1000, rank = tasks.rank[i];
  const work = {
    cube: tasks.cube[i] / 100, vector: tasks.vector[i] / 100,
    hbm: tasks.load[i] + tasks.store[i], l2: tasks.l2[i],
  };
  const rows = Object.entries(work).map(([name, done]) => [name, done / (capacityOf(name, rank) * us)]);
  for (const [link, done] of linksOf.get(i) ?? []) {
    rows.push([link, done / (capacityOf(link, rank) * us)]);
  }
  const fixed = tasks.fixed[i] / 100 / us;
  if (fixed > 0) rows.push(["fixed", Math.min(1, fixed)]);
  return rows.filter(([, share]) => Number.isFinite(share) && share > 0);
};

const shareBars = (i) => {
  const rows = sharesOf(i);
  if (!rows.length) return [];
  return [make("h4", { text: say("shares") }), ...rows.map(([name, share]) =>
    make("div", { class: "share" },
      make("span", { text: resourceText(name) }), trackBar(share, boundColour(name)),
      make("span", { text: percent(share) })))];
};

const whyOf = (i) => {
  const cause = tasks.waited[i];
  const event = eventBetween.get(`${cause} ${i}`);
  const lines = [say(`cause${cause < 0 ? 0 : tasks.cause[i]}`)];
  if (event !== undefined && tasks.cause[i] === CAUSE_EVENT) {
    const kind = strings[events.kind[event]];
    const names = events.tensorsOf(event).map((t) => strings[t]);
    const shown = names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "");
    const text = { data: "causeData", buffer: "causeBuffer", control: "causeControl", user: "causeUser" }[kind];
    if (text) lines.push(say(text, shown || "?"));
  }
  const waits = eventsTo.get(i) ?? 0;
  if (waits && tasks.wait[i] > 0) lines.push(say("causeSyncs", waits));
  return lines.join(" ");
};

const waitPart = (i) => {
  const cause = tasks.waited[i];
  return [
    make("h4", { text: say("waited") }),
    factList([
      [say("waited"), duration(tasks.wait[i])],
      cause >= 0 ? [say("waitedFor"), taskLink(cause)] : null,
    ]),
    make("div", { text: whyOf(i) }),
    ...listOf(say("released"), (releasedBy.get(i) ?? []).map((t) => taskLink(t)), 4),
  ];
};

// The other cards' parts of a collective, and for which of them this one waited.
const partnerPart = (i) => {
  const row = teamRow.get(i);
  if (row === undefined) return [];
  const last = tasks.peer[row], waited = tasks.peer_wait[row];
  const others = teams.get(tasks.team[row]).filter((part) => part !== i);
  const rank = (part) => taskLink(part, say("partner", tasks.rank[part], duration(tasks.start[part])));
  return [
    ...listOf(say("partners", others.length), others.map(rank), 8),
    make("div", { text: last >= 0 && waited > 0
      ? say("partnerWait", duration(waited), tasks.rank[last]) : say("partnerLast") }),
  ];
};

const timePart = (i) => {
  const alone = tasks.dur[i] - tasks.alone[i];
  const slowed = alone > 0 ? tasks.dur[i] / alone - 1 : 0;
  return factList([
    [say("type"), typeOf(i)],
    [say("part"), strings[tasks.group[i]]],
    [say("kind"), strings[tasks.kind[i]]],
    [say("stream"), laneText(lanes[tasks.lane[i]])],
    [say("start"), duration(tasks.start[i])],
    [say("duration"), duration(tasks.dur[i])],
    [say("alone"), duration(alone)],
    [say("slowed"), slowed > 0.0005 ? `+${percent(slowed)}` : "0%"],
    [say("boundBy"), resourceText(boundOf(i))],
    [say("bytes"), tasks.load[i] + tasks.store[i] > 0
      ? say("loads", bytesText(tasks.load[i]), bytesText(tasks.store[i])) : ""],
    [say("communicator"), strings[tasks.communicator[i]]],
  ]);
};

const showDetails = () => {
  const i = state.picked;
  if (i < 0) return showLegend();
  $("side-title").textContent = nameOf(i);
  const fused = fusedRow.has(i) ? fusedOf(fusedRow.get(i)).map((s) => strings[s]) : [];
  const button = (key, act) => make("button", { type: "button", text: say(key), click: act });
  fill($("details"),
    tasks.critical[i] ? make("p", {}, make("span", { class: "badge hot", text: say("onCritical") })) : null,
    timePart(i),
    make("div", { class: "buttons" }, button("before", () => step(-1)), button("after", () => step(1)),
      button("zoomTo", () => reveal(i, true)), button("clear", () => pick(-1))),
    ...waitPart(i),
    ...partnerPart(i),
    ...shareBars(i),
    ...listOf(say("reads"), tasks.readsOf(i).map(tensorText)),
    ...listOf(say("writes"), tasks.writesOf(i).map(tensorText)),
    ...listOf(say("fusedOps", fused.length), fused));
  $("announce").textContent = say("announced", nameOf(i), typeOf(i), duration(tasks.start[i]),
    duration(tasks.dur[i]), resourceText(boundOf(i)));
  return undefined;
};
