// The list of phases. --from, --to, the names of dumps and docs/pipeline.md all
// derive from it.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "models/Recipe.h"
#include "passes/sharding/MeshRequest.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}
namespace tessera {

/// What the passes of a phase may depend on besides the module.
struct PhaseOptions {
  const recipe::Recipe &recipe;
  std::vector<std::string> targets; ///< "cpu:avx512bf16", …; of all kinds until
                                    ///< each has its own program
  models::Mode mode = models::Mode::Train;
  MeshRequest mesh = {}; ///< from --mesh
  int64_t device = 0;    ///< of the mesh: from `partition` on, whose program
  bool fold = true;      ///< whether equal layers are compiled as one
};

struct Phase {
  llvm::StringLiteral name;
  llvm::StringLiteral description; ///< what holds afterwards
  void (*build)(mlir::OpPassManager &, const PhaseOptions &);
  /// Adds the verifier of what holds afterwards. It runs on a dump, which may
  /// be edited, before compilation continues from it. Null if MLIR's own
  /// verifier is enough.
  void (*verify)(mlir::OpPassManager &, const PhaseOptions &) = nullptr;
  /// Runs once for each group of devices whose shares have equal shapes
  /// (passes/sharding); so do all phases after it.
  bool forEachShare = false;
  /// Runs once for each kind of device, with that kind's targets
  /// (DeviceKinds.h); so do all phases after it.
  bool forEachKind = false;
  /// The recipe keys that it reads; a section ends in a dot.
  llvm::ArrayRef<llvm::StringLiteral> recipeKeys = {};
  /// Decides what must be the same for all groups of devices, before `build`
  /// runs on each; it may write attributes. Null if nothing must be.
  mlir::LogicalResult (*agree)(llvm::ArrayRef<mlir::ModuleOp> shares) = nullptr;
};

/// In order, of `mode`. The first one, import, has no passes: its module comes
/// from models/.
llvm::ArrayRef<Phase> phases(models::Mode mode);

/// Whether inference programs gather rows of tables from the layout in which
/// they multiply by them: those for one CPU.
bool gathersAsStored(llvm::ArrayRef<std::string> targets,
                     const MeshRequest &mesh);

/// Position of a phase by name; nullopt if `mode` has none of that name.
std::optional<size_t> findPhase(models::Mode mode, llvm::StringRef name);

/// "03-shard.mlir"; with `suffix` ".cuda-sm_80" it precedes ".mlir".
std::string dumpName(models::Mode mode, size_t phase,
                     llvm::StringRef suffix = "");

/// The phases and their passes as Markdown: docs/pipeline.md, word for word.
/// Registers all passes, for their summaries.
std::string phasesAsMarkdown();

/// Registers the passes of each phase as a pipeline of tessera-opt:
/// --fusion-phase, --kernels-phase=targets=cpu:avx2 and so on. Their options
/// are those of PhasePipelineOptions (PhasePipelines.cpp).
void registerPhasePipelines();

} // namespace tessera
