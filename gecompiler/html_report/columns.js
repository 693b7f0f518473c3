// Level of detail: bars narrower than a pixel become one column a pixel, in the colour of most.
const firstEnding = (ends, first, last, time) => {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (ends[middle] > time) last = middle;
    else first = middle + 1;
  }
  return first;
};

// Calls `bar(i, x0, x1)` for bars one sees, and `column(x, kind, part)` for columns of small
// ones: `kind` is the colour of most of its time and `part` how much of the pixel is busy.
// Time is measured in pixels, so that several lanes and scales can use it.
const walkBars = (lane, source, view, kinds, bar, column) => {
  const { from, to, scale, left } = view;
  let i = firstEnding(source.end, lane.first, lane.last, from);
  let pixel = -1, spent = new Map();
  const flush = () => {
    if (pixel < 0) return;
    let best = 0, most = -1, sum = 0;
    for (const [kind, time] of spent) {
      sum += time;
      if (time > most) [best, most] = [kind, time];
    }
    column(pixel, best, Math.min(1, sum));
    pixel = -1;
    spent = new Map();
  };
  for (; i < lane.last && source.start[i] < to; i += 1) {
    const x0 = left + (source.start[i] - from) * scale, x1 = left + (source.end[i] - from) * scale;
    if (x1 - x0 >= 1.5) {
      bar(i, x0, x1);
      continue;
    }
    const at = Math.floor(x0);
    if (at !== pixel) {
      flush();
      pixel = at;
    }
    spent.set(kinds[i], (spent.get(kinds[i]) ?? 0) + Math.max(x1 - x0, 0.02));
  }
  flush();
};

// The mean of a curve over each of `count` pixels, exact by its areas; also its value at the end.
const curveMeans = (curve, from, scale, count) => {
  const found = new Float64Array(count);
  const { times, values, area } = curve;
  let at = Math.max(0, firstEnding(times, 0, times.length, from) - 1);
  const areaAt = (time) => {
    while (at + 1 < times.length && times[at + 1] <= time) at += 1;
    return times.length && time >= times[at] ? area[at] + values[at] * (time - times[at]) : 0;
  };
  let before = areaAt(from);
  for (let x = 0; x < count; x += 1) {
    const after = areaAt(from + (x + 1) / scale);
    found[x] = Math.max(0, (after - before) * scale);
    before = after;
  }
  return found;
};

const valueAt = (curve, time) => {
  const i = firstEnding(curve.times, 0, curve.times.length, time) - 1;
  return i < 0 ? 0 : curve.values[i];
};
