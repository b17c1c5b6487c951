// What a user says of a mesh: --mesh data=2,tensor=2,zero=1.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera {

/// Whether products take gathers and scatters apart (collective-matmul).
/// `Auto`: where an estimate gains by it.
enum class CollectiveMatmulMode { Auto, On, Off };

struct MeshRequest {
  /// "data=2,tensor=2", slowest-varying first; empty: one device
  std::string axes;
  int64_t zero = 0; ///< what is cut over the data axis, see assign-shardings
  int64_t devices = 1;
  /// Of the axis pipe: a schedule's name, or a table (passes/stages). Empty
  /// without that axis.
  std::string schedule;
  int64_t chunks = 0; ///< stages of a rank of the pipeline; 0: the least
  CollectiveMatmulMode collectiveMatmul =
      CollectiveMatmulMode::Auto; ///< of the axis tensor

  bool hasPipe() const { return llvm::StringRef(axes).contains("pipe="); }
};

/// Axes in any order, each at most once, zero=0…3, schedule=NAME or FILE.csv,
/// which is read, chunks=N, and collective_matmul=auto, on or off. A `world`
/// that is not 0 must be what the axes multiply to. An error says what is wrong
/// and what is known.
llvm::Expected<MeshRequest> parseMeshRequest(llvm::StringRef text,
                                             int64_t world = 0);

} // namespace tessera
