// Small models of every family with odd sizes, and random states and batches
// for their programs.
#pragma once
#include "models/Build.h"
#include "test/models/ConfigFixture.h"
#include "test/passes/sharding/ShardedRun.h"

namespace tessera::testing {

/// One draw: a model, how it is trained, and on how many devices.
struct ModelCase {
  nlohmann::json config;
  models::Recipe recipe;
  int64_t data = 1, expert = 1, context = 1, tensor = 1; ///< the mesh
  int64_t replicate = 1;                                 ///< also of it
  int64_t zero = 0;
  int64_t expertTensor = 0, expertContext = 0; ///< as in MeshRequest

  /// The same seed gives the same case.
  static ModelCase draw(uint64_t seed);
  /// "replicate=1,data=2,expert=1,context=1,tensor=3"
  std::string mesh() const;
  /// One line, from which the case can be made again.
  std::string text() const;
};

/// The module of the case as autodiff leaves it.
mlir::OwningOpRef<mlir::ModuleOp> compileToPrograms(const ModelCase &drawn);

/// State for @train_step: what @init gives, with weights that neither saturate
/// nor flatten a softmax and moments as if far into a run, so that no update
/// divides by what is almost zero.
Named randomState(mlir::ModuleOp module, uint64_t seed);

/// Tokens and targets (every fifth or so is masked) of `function`.
Named randomBatch(mlir::ModuleOp module, llvm::StringRef function,
                  int64_t vocabulary, uint64_t seed);

} // namespace tessera::testing
