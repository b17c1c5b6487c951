// Small clusters and models that tests work sums out for.
#pragma once
#include "parallelism/planner/Search.h"

namespace tessera::planner::test {

/// `nodes` of eight A100s; 240 GB/s inside a node, 20 GB/s a GPU between, both
/// as they are used.
inline Cluster plainCluster(int64_t nodes) {
  Cluster cluster = *loadCluster(TESSERA_SOURCE_DIR
                                 "/hardware/clusters/dgx-a100-80g-32x8.yaml");
  cluster.nodes = nodes;
  cluster.links = {{"inside", 8, 240e9, "", 1, 4e-6},
                   {"between", 0, 20e9, "", 1, 10e-6}};
  return cluster;
}

inline ModelShape specOf(const std::string &name) {
  return *loadModelShape(TESSERA_SOURCE_DIR "/models/specs/" + name);
}

/// The transformer that Korthikanti et al. count: heads as wide as hidden, an
/// MLP of 4h, not gated.
inline ModelShape classic(int64_t layers, int64_t hidden, int64_t heads) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = shape.kvHeads = heads;
  shape.headDim = shape.valueHeadDim = hidden / heads;
  shape.intermediate = 4 * hidden;
  shape.gated = false;
  shape.learnedPositions = true;
  shape.vocab = 51200;
  shape.maxPositions = 2048;
  return shape;
}

} // namespace tessera::planner::test
