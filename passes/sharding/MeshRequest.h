// The mesh that a user requests: --mesh data=2,tensor=2,zero=1.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera {

/// Whether gathers and scatters are decomposed to overlap with matmuls
/// (collective-matmul). `Auto`: where it is faster by estimate.
enum class CollectiveMatmulMode { Auto, On, Off };

struct MeshRequest {
  /// "data=2,tensor=2", slowest-varying first; empty: one device
  std::string axes;
  int64_t zero = 0; ///< ZeRO stage, see assign-shardings
  int64_t devices = 1;
  /// For the axis pipe: a pipeline schedule's name, or its CSV (passes/stages).
  /// Empty without that axis.
  std::string schedule;
  int64_t chunks = 0; ///< stages per rank of the pipeline; 0: the fewest
  CollectiveMatmulMode collectiveMatmul =
      CollectiveMatmulMode::Auto; ///< of the axis tensor
  /// Ranks that shard the width of an expert: 1, or the size of the axis
  /// tensor; 0: what is faster by estimate. See assign-shardings.
  int64_t expertTensor = 0;
  /// Ranks of the axis context with the same experts: 1, or, as if 0, all.
  int64_t expertContext = 0;

  bool hasPipe() const { return llvm::StringRef(axes).contains("pipe="); }
};

/// Parses axes in any order, each at most once, zero=0…3, schedule=NAME or
/// FILE.csv, which is read, chunks=N, collective_matmul=auto, on or off, and
/// expert_tensor and expert_context, 1 or the size of that axis. If `world` is
/// not 0, it must equal the product of the axes. An error says what is wrong
/// and what is allowed.
llvm::Expected<MeshRequest> parseMeshRequest(llvm::StringRef text,
                                             int64_t world = 0);

} // namespace tessera
