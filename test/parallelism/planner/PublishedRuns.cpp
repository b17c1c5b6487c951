#include "test/parallelism/planner/PublishedRuns.h"

#include <stdexcept>

namespace tessera::planner::test {
namespace {

const std::string specs = TESSERA_SOURCE_DIR "/models/specs/";
const std::string clusters = TESSERA_SOURCE_DIR "/hardware/clusters/";

/// Norms, biases with activations and dropout with sums are one kernel each,
/// but casts and transposes are not; and what a framework does op by op.
constexpr double handFused = 1.3, opByOp = 2.5;

/// Torchtitan's selective checkpointing keeps the results of every other
/// product of a block (parallelize_llama.py at commit 9dec370): of Llama-3-8B
/// those of wk, wo and w3 are computed again. Columns by 4,096 rows each.
constexpr double everySecondProduct =
    (1024.0 + 4096 + 14336) / (4096 + 2 * 1024 + 4096 + 3 * 14336);

/// --recompute-modules mla_up_proj of DeepSeek-V3: queries from 1,536 and keys
/// and values from 512, of all that a token multiplies with in a layer.
constexpr double upProjections =
    (1536.0 * 128 * 192 + 512.0 * 128 * 256) /
    (7168.0 * (1536 + 512 + 64) + 1536.0 * 128 * 192 + 512.0 * 128 * 256 +
     128.0 * 128 * 7168 + 9 * 3 * 7168.0 * 2048);

/// Megatron-LM of 2022: attention's scores in memory, dropout, no distributed
/// optimizer, no collective beside a product.
Workload megatron2022(int64_t batch) {
  Workload workload;
  workload.sequence = 2048;
  workload.globalBatch = batch;
  workload.flashAttention = false;
  workload.dropout = true;
  workload.chunkedLoss = false;
  workload.overlap = {false, false, false, false};
  workload.elementwisePasses = handFused;
  return workload;
}

/// Adds runs that differ in a few words.
class Table {
public:
  std::vector<PublishedRun> runs;
  void add(PublishedRun run) { runs.push_back(std::move(run)); }

  void addMegatron2022() {
    auto add = [&](const char *size, int64_t gpus, int64_t batch,
                   const char *plan, double utilization) {
      PublishedRun run{std::string("Megatron ") + size + ", A100",
                       "arXiv 2205.05198, tables 3 and 5"};
      run.spec = std::string("megatron-") + size;
      run.cluster = "dgx-a100-80g-32x8";
      run.gpus = gpus;
      run.plan = plan;
      run.workload = megatron2022(batch);
      run.allKeys = true;
      run.utilization = utilization;
      runs.push_back(run);
    };
    add("22b", 8, 4, "tensor=8,micro=4,zero=0", 0.415);
    add("175b", 64, 64, "tensor=8,pipe=8,interleave=3,zero=0,stages=even",
        0.514);
    add("530b", 280, 280, "tensor=8,pipe=35,interleave=3,zero=0,stages=even",
        0.560);
    add("1t", 512, 512, "tensor=8,pipe=64,zero=0,stages=even", 0.563);
  }

  /// The scripts say all of the layout but no recomputation, and Megatron-LM
  /// counts half of the keys since March 2025 (8873b55d6a), before these
  /// figures (December 2025). The paper on folding is older and counts all.
  void addExperts() {
    const std::string zoo = "Megatron-MoE-ModelZoo, runtime.conf";
    PublishedRun run;
    run.cluster = "dgx-h100-128x8";
    run.spec = "mixtral-8x22b";
    run.gpus = 128;
    run.workload = megatronCore(4096, 256);
    run.plan =
        "tensor=2,pipe=8,interleave=7,expert=8,stages=even,recompute=none";
    run.name = "Mixtral-8x22B capacity 1, H100";
    run.source = zoo;
    run.utilization = 470 / 989.4;
    add(run);
    run.name = "Mixtral-8x22B dropless, H100";
    run.utilization = 445 / 989.4;
    run.workload.imbalance = Workload().imbalance; // nothing forces balance
    add(run);
    run.workload.imbalance = 1;
    run.allKeys = true;
    run.name = "Mixtral-8x22B folded, H100";
    run.source = "arXiv 2504.14960";
    run.utilization = 0.493;
    run.assumed = "interleave, even load";
    add(run);
    run.name = "Qwen2-57B-A14B folded, H100";
    run.spec = "qwen2-57b-a14b";
    run.gpus = 64;
    run.plan = // the model zoo's in the month of the paper
        "tensor=2,pipe=4,interleave=7,expert=4,stages=even,recompute=none";
    run.utilization = 0.390;
    run.assumed = "layout as in the model zoo, even load";
    add(run);
  }

  /// As scripts/performance of Megatron-Bridge's branch r0.1.0 run it on H100:
  /// experts' exchanges overlap, tensor parallelism and gradients do not;
  /// gradients and moments in bf16; routing is forced to be even.
  void addDeepSeek() {
    PublishedRun run{"DeepSeek-V3 fp8, H100", "Megatron-Bridge 25.09"};
    run.spec = "deepseek-v3";
    run.cluster = "dgx-h100-128x8";
    run.gpus = 1024;
    run.plan = "tensor=2,pipe=8,interleave=4,expert=64,recompute=none";
    run.workload = megatronCore(4096, 8192);
    run.workload.overlap = {.tensor = false, .expert = true, .data = false};
    run.workload.fp8 = true;
    run.workload.gradientBytes = 2;
    run.workload.optimizerBytes = 8;
    run.workload.repeatedProducts = upProjections;
    run.utilization = 338 / 989.4;
    run.miss = "unknown: not in the model are the host, which waits for each "
               "dispatch's sizes, a cast for each expert, rotations that are "
               "not fused";
    run.lessMemory = "linear layers keep their inputs in fp8, and the parts of "
                     "heads are computed again";
    add(run);
  }

  /// 6,667 and 5,762 tokens a second and GPU, 57.9 GFLOP each by its formula.
  /// PyTorch's attention was FlashAttention-2.
  void addTorchtitan() {
    PublishedRun run{"Llama-3.1-8B compiled, H100 500 W",
                     "torchtitan benchmarks, 2024-12"};
    run.spec = "llama-3-8b";
    run.cluster = "grand-teton-h100-1x8";
    run.gpus = 8;
    run.plan = "micro=2,zero=3";
    run.workload.sequence = 8192;
    run.workload.globalBatch = 16;
    run.workload.chunkedLoss = false;
    run.workload.elementwisePasses = handFused;
    run.workload.repeatedProducts = everySecondProduct;
    run.workload.asynchronousAttention = false;
    run.allKeys = true;
    run.utilization = 6667 * 57.9e9 / 989.4e12;
    run.assumed = "clock under the power limit";
    add(run);
    run.name = "Llama-3.1-8B eager, H100 500 W";
    run.workload.elementwisePasses = opByOp;
    run.utilization = 5762 * 57.9e9 / 989.4e12;
    add(run);
  }

  /// The table of Megatron-LM's README (images/model_table.png, July 2024)
  /// gives tensor and pipeline degrees of the 177B model; the batch is the same
  /// for every number of GPUs.
  void addDense() {
    PublishedRun gpt2{"GPT-2 124M, A100", "llm.c scripts"};
    gpt2.spec = "gpt2-124m";
    gpt2.cluster = "dgx-a100-80g-1x8";
    gpt2.gpus = 8;
    gpt2.plan = "micro=64,zero=1";
    gpt2.workload.sequence = 1024;
    gpt2.workload.globalBatch = 512;
    gpt2.allKeys = true;
    gpt2.utilization = 0.60;
    add(gpt2);

    PublishedRun run{"Megatron 175B, 96 H100", "Megatron-LM README 0.8"};
    run.spec = "megatron-175b-128k";
    run.cluster = "dgx-h100-128x8";
    run.gpus = 96;
    run.plan = "tensor=8,pipe=6,interleave=8,stages=even,recompute=none";
    run.workload = megatronCore(4096, 1152);
    run.allKeys = true;
    run.utilization = 0.47;
    run.assumed = "interleave";
    add(run);
    run.name = "Megatron 175B, 4,608 H100";
    run.gpus = 4608;
    run.utilization = 0.42;
    add(run);
  }

  void addLlama() {
    PublishedRun run{"Llama-3.1 405B, 8,192 H100", "arXiv 2407.21783, table 4"};
    run.spec = "llama-3.1-405b";
    run.cluster = "dgx-h100-128x8";
    run.gpus = 8192;
    // Section 3.3.2: nothing is recomputed; the first and the last chunk are a
    // layer short, which leaves them none, so that 126 layers are 128 chunks.
    run.plan = "tensor=8,pipe=16,interleave=8,recompute=none";
    run.workload = megatronCore(8192, 2048);
    // The report hides FSDP's traffic, and no word says that of tensor
    // parallelism's. FlashAttention-3 came out in the month of the report.
    run.workload.overlap.tensor = false;
    run.workload.asynchronousAttention = false;
    run.utilization = 0.43;
    run.assumed = "tensor parallelism exposed, FlashAttention-2";
    run.lessMemory = "tensors are freed before their last reference is gone "
                     "(section 3.3.2)";
    add(run);
    run = {"Llama-3.1 405B fp8, 1,024 H100", "Megatron-Bridge 25.09"};
    run.spec = "llama-3.1-405b";
    run.cluster = "dgx-h100-128x8";
    run.gpus = 1024;
    run.plan = "tensor=8,pipe=8,context=2,interleave=8,recompute=none";
    run.workload = megatronCore(8192, 512);
    run.workload.fp8 = true;
    run.workload.gradientBytes = 2;
    run.utilization = 763 / 989.4;
    add(run);
  }
};

template <typename T> T orThrow(StatusOr<T> value) {
  if (!value.ok())
    throw std::runtime_error(value.message());
  return value.take();
}

} // namespace

Workload megatronCore(int64_t sequence, int64_t batch) {
  Workload workload;
  workload.sequence = sequence;
  workload.globalBatch = batch;
  workload.chunkedLoss = false;
  workload.imbalance = 1;
  workload.overlap.expert = false;
  workload.elementwisePasses = handFused;
  return workload;
}

const std::vector<PublishedRun> &publishedRuns() {
  static const std::vector<PublishedRun> runs = [] {
    Table table;
    table.addMegatron2022();
    table.addExperts();
    table.addDeepSeek();
    table.addTorchtitan();
    table.addDense();
    table.addLlama();
    return table.runs;
  }();
  return runs;
}

double predicted(const PublishedRun &run, StepCost *cost, Memory *memory,
                 double clock) {
  ModelShape model = orThrow(loadModelShape(specs + run.spec));
  if (run.change)
    run.change(model);
  Cluster cluster = orThrow(loadCluster(clusters + run.cluster + ".yaml"));
  cluster.gpu.sustainedClock *= clock;
  if (Status status = resize(cluster, run.gpus); !status.ok())
    throw std::runtime_error(status.message());
  ParallelPlan plan = orThrow(parsePlan(run.plan, run.gpus));
  CostModel costs(model, cluster, run.workload);
  StepCost step = costs.step(plan);
  if (cost)
    *cost = step;
  if (memory)
    *memory = peakMemory(model, run.workload, plan, step.stages);
  return model.flopsPerToken(run.workload.sequence, run.allKeys) *
         step.tokensPerSecond / (double(run.gpus) * cluster.gpu.bf16);
}

} // namespace tessera::planner::test
