// Puts the sections of a report together.
function showProgram() {
  const programs = DATA.programs;
  let program = Math.max(0, programs.findIndex(one => one.name === "train_step")), share = 0;
  const made = []; // what depends on the choice: [place, make]
  const again = () => made.forEach(([place, make]) => { place.replaceChildren(); make(place); });
  const shares = () => programs[program].shares;
  const chooser = () => el("div", { class: "bar" },
    programs.length > 1 && choice("program", programs.map(one => one.name), i => { program = i; share = 0; again(); }, program),
    shares().length > 1 && choice("ranks", shares().map(one => one.ranks), i => { share = i; again(); }, share));
  const chosen = (id, title, note, make, height) => section(id, title, note, body => {
    const place = el("div");
    body.append(place);
    const draw = node => { node.append(chooser()); make(node, programs[program], shares()[share]); };
    made.push([place, draw]);
    draw(place);
  }, height);
  const machine = DATA.machine, times = `Times are ${machine.source === "tessera bench kernels" ? "measured" : "estimated"} for ${machine.name} ` +
    `(${machine.source}): a kernel takes the longer of its FLOPs over the peak and its bytes over the bandwidth` +
    (DATA.sharding ? `; collectives go over ${machine.link} of ${scaled(machine.linkBytes, "B/s")}` : "") + ".";
  const measured = machine.source === "tessera bench kernels"
    ? "Times are those that tessera bench kernels measured; what was not measured is estimated from FLOPs and bytes." : times;
  chosen("model", "Model", measured + " A layer is chosen by a click or Enter.", (body, one) => showLayers(body, one), 420);
  chosen("kernels", "Kernels", "Each point is a kernel; the lines are what the hardware allows. A row or a point is chosen by pointer, " +
    "or with the arrow keys in the picture.", (body, one, own) => showKernels(body, own), 860);
  chosen("memory", "Memory", "State and arena of one rank over the steps of the program, each a launch, a copy or a collective.",
    (body, one, own) => showMemory(body, own), 900);
  chosen("timeline", "Timeline", "One rank of each group with the same program. " + measured, (body, one) => showTimeline(body, one), 330);
  if (DATA.schedule) section("schedule", "Pipeline schedule", "Times of ranks in FLOPs; transfers are not counted.",
    body => showSchedule(body, DATA.schedule), 300);
  if (DATA.sharding) section("sharding", "Sharding", "Rows by columns of each tensor; leading dimensions are rows. A color is a part, " +
    "with the ranks that hold it.", body => showSharding(body, DATA.sharding), 600);
  if (DATA.ir) section("ir", "Phases", "The module after each phase, without locations; numbers of values do not count as changes.",
    body => showIr(body, DATA.ir), 900);
  section("about", "About", null, body => body.append(el("dl", {}, Object.entries(DATA.facts).map(([name, value]) =>
    [el("dt", {}, el("b", {}, name)), el("dd", { style: "overflow-wrap:anywhere" }, [].concat(value).join(", "))])),
    el("details", {}, el("summary", {}, "recipe"), el("pre", { class: "box" }, DATA.recipe)),
    el("details", {}, el("summary", {}, "config.json"), el("pre", { class: "box" }, DATA.config))), 300);
}

function showPlan() {
  section("chosen", "The plan", null, showChosen, 160);
  section("plans", "Comparison", "The fastest plans that fit. The printed plan is the simplest of those that are about as fast.", showPlans, 900);
  if (DATA.choices) section("binding", "What was binding", null, showBinding, 800);
  if (DATA.schedule) section("schedule", "Pipeline schedule", "The plan's schedule, simulated with the times of the cost model.",
    body => showSchedule(body, DATA.schedule), 300);
}

document.getElementById("title").textContent = DATA.title;
document.getElementById("subtitle").textContent = { program: () => `${DATA.facts.mesh} · ${DATA.facts.device} · compiler ${DATA.facts.compiler}`,
  plan: () => "parallelism plan · " + DATA.gpu, run: () => "training run",
  eval: () => `evaluation · ${DATA.source} · ${DATA.tasks} · version ${DATA.version}` }[DATA.kind]();
({ program: showProgram, plan: showPlan, run: showRun, eval: showEval })[DATA.kind]();
performance.mark("report-ready");
