// When the steps of a program run, and the pipeline schedule.
const kindFills = { collective: "--c5", backward: "--c1", forward: "--c0", other: "--c6" };

function showTimeline(body, program) {
  const timeline = program.timeline;
  if (!timeline) { body.append(el("p", {}, "No timeline: " + program.noTimeline + ".")); return; }
  const lanes = timeline.lanes.map(lane => ({ ...lane, steps: program.shares[lane.share].steps,
    name: (lane.collectives ? "collectives" : program.shares[lane.share].ranks), spans: lane.events }));
  const kindOf = (span, lane) => {
    const at = span[2], steps = lane.steps;
    if (lane.collectives) return "collective";
    return steps.layer[at] < 0 ? "other" : steps.backward[at] ? "backward" : "forward";
  };
  const laneOf = new Map();
  for (const lane of lanes) for (const span of lane.spans) laneOf.set(span, lane);
  const seconds = timeline.makespan, first = timeline.lanes[0];
  const hasCollectives = timeline.lanes.some(lane => lane.collectives);
  body.append(facts([["one run", timeText(seconds)],
    ["kernels of " + lanes[0].name, timeText(first.busy) + ` (${percentText(first.busy / (seconds || 1))})`],
    hasCollectives && ["waiting for collectives", timeText(first.exposed) + ` (${percentText(first.exposed / (seconds || 1))})`],
    hasCollectives && ["collectives", timeText(first.collectiveSeconds), "overlapped or not"],
    program.modelFlops && seconds && ["model FLOP/s of a rank", scaled(program.modelFlops / seconds / (DATA.sharding?.ranks || 1), "FLOP/s")]]));
  if (timeline.leftOut) body.append(el("p", { class: "note" }, `Of long loops the first iterations are drawn; ` +
    `${timeline.leftOut} later ones have their time, and no spans.`));
  body.append(legend([["forward", "--c0"], ["backward", "--c1"], ["outside of layers", "--c6"],
    hasCollectives && ["collective", "--c5"]].filter(Boolean)),
    spanChart({ name: "timeline of " + program.name, unit: "time", lanes, end: seconds * 1e9,
      fillOf: span => kindFills[kindOf(span, laneOf.get(span))], text: value => timeText(value / 1e9),
      labelOf: span => laneOf.get(span).steps.names[laneOf.get(span).steps.name[span[2]]],
      say: (span, lane) => `${stepName(lane.steps, span[2])}: step ${span[2]}, from ${timeText(span[0] / 1e9)}, ` +
        `takes ${timeText(span[1] / 1e9)}` }));
  for (const share of program.shares) if (share.collectives.length) body.append(collectiveTable(share));
}

function collectiveTable(share) {
  return el("details", {}, el("summary", {}, `collectives of ${share.ranks}`), table([
    { name: "kind", word: true, value: one => one.kind }, { name: "type", word: true, value: one => one.type },
    { name: "over", word: true, value: one => one.axes.join(", ") }, { name: "ranks", value: one => one.members },
    { name: "runs", value: one => one.runs }, { name: "bytes", value: one => one.bytes, text: one => byteText(one.bytes) },
    { name: "sent", value: one => one.runs * one.sent, text: one => byteText(one.runs * one.sent) },
    { name: "overlapped launches", value: one => one.launches, text: one => one.started ? one.launches : "–" },
  ], share.collectives, { by: 6, label: "collectives of " + share.ranks }).node);
}

const opFills = { F: "--c0", B: "--c1", I: "--c2", W: "--c3", OVERLAP: "--c4", OPT_STEP: "--c6" };
const opNames = { F: "forward", B: "backward", I: "gradient of input", W: "gradient of weights", OVERLAP: "overlapped",
  OPT_STEP: "optimizer" };

function showSchedule(body, schedule) {
  const used = new Set(schedule.lanes.flatMap(lane => lane.events.map(event => event[3])));
  body.append(facts([["schedule", schedule.name || "–"], ["ranks", schedule.lanes.length], ["stages", schedule.stages],
    ["microbatches", schedule.microbatches], ["bubble", percentText(schedule.bubble)],
    ["all of them", number(schedule.makespan) + " " + schedule.unit]]));
  body.append(legend(Object.keys(opFills).filter(op => used.has(op)).map(op => [opNames[op], opFills[op]])),
    spanChart({ name: "pipeline schedule", unit: schedule.unit, end: schedule.makespan,
      lanes: schedule.lanes.map(lane => ({ ...lane, spans: lane.events })), fillOf: span => opFills[span[3]],
      text: value => number(value), labelOf: span => span[4] >= 0 ? String(span[4]) : "",
      say: (span, lane) => `${lane.name}, ${opNames[span[3]] || span[3]} ${span[2]}: from ${number(span[0])}, takes ${number(span[1])} ` +
        `${schedule.unit}; the rank is busy ${percentText(lane.busy / (schedule.makespan || 1))}, ${lane.live} microbatches live at most` }));
}
