// Attention sites, warnings with what to do, and rules that the schedule breaks.
const windowText = ([left, right]) =>
  (left < 0 && right < 0 ? say("unbounded") : [left, right].map((n) => (n < 0 ? "∞" : n)).join(", "));

const siteCells = (site) => [
  say(site.status), site.kv_heads === site.q_heads ? site.q_heads : `${site.q_heads} / ${site.kv_heads}`,
  site.v_head_dim === site.head_dim ? site.head_dim : `${site.head_dim} / ${site.v_head_dim}`,
  site.mask + (site.proven ? ` (${site.proven})` : ""), windowText(site.window),
  site.kv_cache ? say("yes") : "–", told(site.reason),
].map((cell) => String(cell ?? "–"));

const siteHeads = () =>
  [say("status"), say("heads"), say("headSize"), say("mask"), say("window"), say("cache"), say("reason")];

const showAttention = () => {
  $("attention").hidden = !report;
  if (!report) return;
  const { sites } = report.attention;
  if (!sites.length) return fill($("attention-body"), make("p", { class: "quiet", text: say("noAttention") }));
  const kinds = new Map();
  for (const site of sites) {
    const cells = siteCells(site), key = JSON.stringify(cells);
    if (!kinds.has(key)) kinds.set(key, { count: 0, cells });
    kinds.get(key).count += 1;
  }
  const all = make("details", {}, make("summary", { text: say("allSites", sites.length) }));
  all.addEventListener("toggle", () => {
    if (all.open && all.children.length === 1) {
      all.append(make("div", { class: "scroll" }, tableOf("", [say("op"), ...siteHeads()],
        sites.map((site) => ({ cells: [site.name, ...siteCells(site)] })), [0, 1, 4, 7])));
    }
  });
  return fill($("attention-body"),
    tableOf(`${report.attention.fused} ${say("fused")}, ${report.attention.refused} ${say("refused")}`,
      [say("sites"), ...siteHeads()],
      [...kinds.values()].map(({ count, cells }) => ({ cells: [`${count} ×`, ...cells] })), [0, 1, 4, 7]), all);
};

const warningNode = (code, message, hint) =>
  make("div", { class: "warning" }, make("code", { text: code }), make("div", { text: message }),
    hint ? make("div", {}, make("b", { text: say("hint", hint) })) : "");

const verdict = () => {
  const rules = { race_free: "raceFree", deadlock_free: "deadlockFree", within_limits: "withinLimits" };
  const texts = Object.entries(rules).map(([key, text]) =>
    (report.verification[key] ? say(text) : say("broken", say(text))));
  return make("p", { class: "quiet", text: say("verified", texts.join(", ")) });
};

const showWarnings = () => {
  $("warnings").hidden = !report;
  if (!report) return;
  const { findings } = report.verification;
  fill($("warnings-body"),
    findings.length ? make("h3", { text: say("findings") }) : null,
    ...findings.slice(0, 50).map((f) => warningNode(f.code, told(f.message), told(f.fix))),
    ...report.warnings.map((w) => warningNode(w.code, told(w.message), told(w.hint))),
    findings.length + report.warnings.length ? null : make("p", { class: "quiet", text: say("noWarnings") }),
    verdict());
};
