// Device memory that compiled programs need, known once they are planned.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Bytes of what ranks with shards of equal shapes run, on one kind of device.
/// Of the programs that a training run loads (TrainingPrograms.h).
struct RankMemory {
  int64_t rank = 0;    ///< the first of these ranks
  std::string device;  ///< "cpu", "cuda:sm_80"
  int64_t state = 0;   ///< parameters, moments, counters
  int64_t arena = 0;   ///< of the program that needs most; they share it
  int64_t io = 0;      ///< inputs and outputs of all of them
  std::string largest; ///< the program with that arena

  int64_t total() const { return state + arena + io; }
};

/// Of a module after the phase planning.
RankMemory memoryOf(mlir::ModuleOp module, int64_t rank, std::string device);

/// Of every share and device kind of a valid serialized artifact.
std::vector<RankMemory> memoryOf(llvm::StringRef artifact);

} // namespace tessera
