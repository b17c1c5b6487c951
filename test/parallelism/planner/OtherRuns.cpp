// Runs that were compared with the cost model when it stood, to see whether it
// holds for more than the runs by which it was made.
#include "test/parallelism/planner/PublishedRuns.h"

namespace tessera::planner::test {
namespace {

struct Size {
  const char *name;
  int64_t heads, hidden, layers, gpus, batch;
  const char *plan;
  double teraflops;
};

/// images/model_table.png of Megatron-LM's README (commit f2e5db402c, July
/// 2024): tensor and pipeline degrees are given, 48 data ranks; the chunks of
/// about two layers and one sequence a microbatch are not.
std::vector<PublishedRun> weakScaling() {
  const Size sizes[] = {
      {"1.7B", 16, 2048, 24, 48, 192, "tensor=1", 408.8},
      {"7.1B", 32, 4096, 30, 96, 192, "tensor=2", 465.9},
      {"16B", 48, 6144, 32, 192, 192, "tensor=4", 489.1},
      {"32B", 56, 7168, 48, 384, 192, "tensor=8", 459.6},
      {"70B", 64, 8192, 84, 768, 384, "tensor=8,pipe=2,interleave=21", 419.7},
      {"119B", 80, 10240, 92, 1536, 768, "tensor=8,pipe=4,interleave=23",
       420.5},
      {"177B", 96, 12288, 96, 2304, 1152, "tensor=8,pipe=6,interleave=8",
       432.8},
      {"314B", 128, 16384, 96, 3072, 1536, "tensor=8,pipe=8,interleave=6",
       474.4},
      {"462B", 144, 18432, 112, 6144, 3072, "tensor=8,pipe=16,interleave=7",
       459.9}};
  std::vector<PublishedRun> runs;
  for (const Size &size : sizes) {
    PublishedRun run{std::string("Megatron ") + size.name + ", H100",
                     "Megatron-LM README 0.8, table"};
    run.spec = "megatron-175b-128k";
    run.change = [size](ModelShape &model) {
      model.layers = size.layers;
      model.hidden = size.hidden;
      model.heads = model.kvHeads = size.heads;
      model.intermediate = 4 * size.hidden;
    };
    run.cluster = "dgx-h100-128x8";
    run.gpus = size.gpus;
    run.plan = std::string(size.plan) + ",stages=even,recompute=none";
    run.workload = megatronCore(4096, size.batch);
    run.allKeys = true;
    run.utilization = size.teraflops / 989.4;
    run.assumed = "micro";
    if (run.plan.find("pipe") != std::string::npos)
      run.assumed += ", interleave";
    runs.push_back(run);
  }
  return runs;
}

/// DGX-H100, release 25.09: per-tensor fp8, causal FLOPs.
std::vector<PublishedRun> megatronBridge() {
  PublishedRun run{"Llama-3-8B fp8, 8 H100", "Megatron-Bridge 25.09"};
  run.spec = "llama-3-8b";
  run.cluster = "dgx-h100-128x8";
  run.gpus = 8;
  run.plan = "zero=3,recompute=none";
  run.workload = megatronCore(8192, 128);
  run.workload.fp8 = true;
  run.workload.gradientBytes = 2;
  run.utilization = 725 / 989.4;
  PublishedRun large = run;
  large.name = "Llama-3-70B fp8, 64 H100";
  large.change = [](ModelShape &model) {
    model.layers = 80;
    model.hidden = 8192;
    model.heads = 64;
    model.intermediate = 28672;
  };
  large.gpus = 64;
  large.plan = "tensor=4,pipe=8,interleave=5,recompute=none";
  large.utilization = 727 / 989.4;
  return {run, large};
}

PublishedRun named(const std::string &name) {
  for (const PublishedRun &run : publishedRuns())
    if (run.name == name)
      return run;
  return {};
}

} // namespace

const std::vector<PublishedRun> &otherRuns() {
  static const std::vector<PublishedRun> runs = [] {
    std::vector<PublishedRun> all = weakScaling();
    for (const PublishedRun &run : megatronBridge())
      all.push_back(run);
    PublishedRun balanced = named("Mixtral-8x22B dropless, H100");
    balanced.name = "Mixtral-8x22B forced balance, H100";
    balanced.workload.imbalance = 1;
    balanced.utilization = 465 / 989.4;
    all.push_back(balanced);
    PublishedRun llama = named("Llama-3.1 405B, 8,192 H100");
    llama.name = "Llama-3.1 405B, 16,384 H100";
    llama.gpus = 16384;
    llama.utilization = 0.41;
    all.push_back(llama);
    return all;
  }();
  return runs;
}

} // namespace tessera::planner::test
