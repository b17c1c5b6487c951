// libFuzzer target: whatever the bytes, a cluster file is read or refused with
// one line, and what is read can be planned for.
#include <cstdlib>

#include "parallelism/planner/Search.h"

using namespace tessera;
using namespace tessera::planner;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  StatusOr<Cluster> cluster = parseCluster(text, "fuzz");
  if (!cluster.ok()) {
    require(!cluster.message().empty());
    require(cluster.message().find('\n') == std::string::npos);
    return 0;
  }
  require(cluster->gpus() > 0 && !cluster->links.empty());
  if (!resolveInternode(*cluster, {}).ok())
    require(resolveInternode(*cluster, {1e9, {}}).ok() ||
            cluster->links.size() < 2);
  if (!resize(*cluster, cluster->gpusPerNode).ok())
    return 0;
  ModelShape model;
  model.layers = 2;
  model.hidden = model.intermediate = 64;
  model.heads = model.kvHeads = 2;
  model.headDim = model.valueHeadDim = 32;
  model.vocab = 128;
  ParallelPlan plan;
  plan.data = cluster->gpus();
  Workload workload;
  workload.globalBatch = plan.data;
  workload.sequence = 64;
  StatusOr<Candidate> candidate = evaluate(model, *cluster, workload, plan);
  if (candidate.ok())
    require(candidate->cost.total > 0 && candidate->memory.total() > 0);
  return 0;
}
