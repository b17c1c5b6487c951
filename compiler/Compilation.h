// The state of one compilation, private to the files of the driver.
#pragma once
#include "compiler/CompileDevice.h"
#include "compiler/DeviceKinds.h"
#include "compiler/Driver.h"
#include "compiler/Phases.h"
#include "compiler/cache/ArtifactCache.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OwningOpRef.h"
#include "models/HfConfig.h"
#include "models/Recipe.h"
#include <chrono>

namespace tessera {

inline constexpr llvm::StringLiteral kConfigAttr =
    "tessera.config"; // config.json as given
inline constexpr llvm::StringLiteral kRecipeAttr =
    "tessera.recipe"; // resolved, as YAML
inline constexpr llvm::StringLiteral kModeAttr =
    "tessera.mode"; // "train" or "infer"
inline constexpr llvm::StringLiteral kPhaseAttr =
    "tessera.phase"; // the last one that has run

inline llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

/// Collects diagnostics; a phase that fails is reported by its first error and
/// that one's notes, in one line.
class FirstError {
public:
  explicit FirstError(mlir::MLIRContext *context)
      : handler(context, [this](mlir::Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error ||
              !text.empty())
            return mlir::success();
          llvm::raw_string_ostream out(text);
          diagnostic.getLocation()->print(out);
          out << ": " << diagnostic.str();
          for (mlir::Diagnostic &note : diagnostic.getNotes())
            out << "; " << note.getLocation() << ": " << note.str();
          return mlir::success();
        }) {}
  std::string text;

private:
  mlir::ScopedDiagnosticHandler handler;
};

/// A module between phases. After splitByShare and splitByKind there is one for
/// each group of devices and each kind of device.
struct Branch {
  DeviceKind kind;
  /// Devices of the mesh whose program it is, and the number of their group.
  std::vector<int64_t> devices = {0};
  size_t share = 0;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// One compilation, from request to file.
class Compilation {
public:
  explicit Compilation(const CompileRequest &request) : request(request) {}

  llvm::Expected<CompileSummary> run();

private:
  llvm::Error compile();
  llvm::Error resolvePhases();
  llvm::Error checkPhaseOfMode(llvm::StringRef name) const;
  llvm::Error chooseTargets();
  void warnOfFewSequences() const;
  llvm::Error readInputs();
  llvm::Error checkContinuation();
  void nameProgram(llvm::StringRef source);
  llvm::Error askToAccept() const;
  llvm::Expected<bool> serveFromCache(const ArtifactCache &cache);
  llvm::Error runPhases();
  llvm::Error tryPhases();
  llvm::Error importModel();
  llvm::Error parseInput();
  llvm::Error checkMode() const;
  void limitContext();
  bool isGiven(llvm::StringRef key) const;
  llvm::Error takeStoredWeights();
  llvm::Error takeStoredBase();
  llvm::Error takeLayouts();
  void dropLayouts();
  void dropTable();
  llvm::Error checkQuantOptions() const;
  void markLayouts(mlir::ModuleOp module) const;
  bool hasOtherGroups(int64_t group, recipe::ZeroPoints zeros) const;
  llvm::Error checkPrecision();
  llvm::Error checkInferenceMesh() const;
  llvm::Error checkBase() const;
  llvm::Error verifyInput();
  llvm::Error adoptDevices();
  llvm::Error adoptTargets();
  void splitByShare();
  void splitByKind();
  PhaseOptions optionsFor(const Branch &branch) const;
  llvm::Error runPhase(size_t i);
  llvm::Error agree(size_t i);
  llvm::Error runPhaseOn(size_t i, Branch &branch);
  llvm::Error dump(size_t phase, Branch &branch);
  std::string suffixOf(const Branch &branch) const;
  llvm::Expected<DevicePart> compileBranch(Branch &branch, KernelCache *cache);
  llvm::Expected<std::string> buildArtifact();
  llvm::Error write(llvm::StringRef artifact);
  llvm::Error writeIr();
  void report(llvm::StringRef what,
              std::chrono::steady_clock::time_point since);

  const CompileRequest &request;
  models::LoadedConfig config;
  models::Recipe recipe;
  models::Mode mode = models::Mode::Train;
  MeshRequest mesh;
  std::vector<std::string> targets;
  mlir::DialectRegistry registry;
  std::unique_ptr<mlir::MLIRContext> context;
  std::vector<Branch> branches; ///< one, until kinds of devices part
  std::vector<std::pair<std::string, std::string>> sources;
  bool isFoldedInput = false; ///< whether the dump given is folded
  bool fold = true;           ///< whether equal layers are compiled as one
  size_t first = 0, last = 0; ///< indices of the phases to run
  CacheMode cacheMode = CacheMode::on;
  std::string programHash; ///< hash of the program's meaning
  std::string cacheKey;    ///< hash of the whole artifact
  CompileSummary summary;
};

} // namespace tessera
