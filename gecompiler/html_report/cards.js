// Several cards: how they are cut, what is sent and what of it shows, and a row for each kind.
const MOST_CARDS = 32; // rows

const pipelineRow = ({ pipeline, bubble, mesh }) => {
  if (!pipeline) return (mesh.pp ?? 1) > 1 ? [say("cardsIdle"), say("ofTime", percent(bubble))] : null;
  const { stages, micro_batches: count, schedule, abreast, uniform_bubble: uniform } = pipeline;
  if (stages > 1) {
    return [say("cardsPipeline"),
      say("cardsPipelineValue", stages, count, schedule, percent(bubble), percent(uniform))];
  }
  return [say("cardsAbreast"), abreast > 1 ? say("cardsAbreastValue", count, abreast) : String(count)];
};

const placeText = (place) => Object.entries(place).map(([axis, at]) => `${axis}${at}`).join(" ");

// Rows that say the same but for their cards are one.
const cardRows = (found) => {
  const kinds = new Map();
  for (const row of found) {
    const cells = [us(row.compute_us), us(row.exposed_us), us(row.idle_us), bytesText(row.memory.total ?? 0)];
    const key = state.folds ? cells.join() : String(row.rank);
    if (!kinds.has(key)) kinds.set(key, { cards: [], places: [], cells });
    kinds.get(key).cards.push(row.rank);
    kinds.get(key).places.push(placeText(row.place));
  }
  return [...kinds.values()].map(({ cards, places, cells }) => ({
    cells: [runsText(cards), places.length > 1 ? `${places[0]} … ${places[places.length - 1]}` : places[0], ...cells],
  }));
};

const showCards = () => {
  const found = report?.parallel;
  $("cards").hidden = !found;
  if (!found) return;
  const { mesh, ranks: count, simulated_ranks: simulated, topology, binding, sent_bytes: sent } = found;
  const axes = Object.entries(mesh).map(([axis, size]) => `${axis} ${size}`).join(" × ");
  const time = report.schedule.makespan_us || 1, all = cardRows(found.per_rank);
  const limit = binding.kind === "bubble" ? say("boundBubble") : resourceText(binding.name);
  fill($("cards-body"),
    factList([
      [say("cardsMesh"), axes ? `${count} (${axes})` : String(count)],
      [say("cardsTopology"), topology],
      simulated < count ? [say("cardsSimulated"), say("cardsOfEach", simulated, count)] : null,
      [say("cardsSent"), Object.entries(sent).map(([axis, size]) => `${axis} ${bytesText(size)}`).join(", ")],
      [say("cardsExposed"), say("cardsExposedValue", us(found.communication_us), us(found.exposed_us),
        percent(found.exposed_us / time))],
      pipelineRow(found),
      [say("cardsBound"), `${limit} (${say("ofTime", percent(binding.share))})`],
    ], "facts wide"),
    tableOf("", [say("card"), say("place"), say("computes"), say("exposed"), say("idleTime"), say("cardMemory")],
      all.slice(0, MOST_CARDS), [0, 1]),
    all.length > MOST_CARDS ? make("p", { class: "quiet", text: say("more", all.length - MOST_CARDS) }) : null);
};
