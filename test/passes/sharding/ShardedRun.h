// Runs one program on all devices of a mesh, each with its own local program,
// as if they were one.
#pragma once
#include "test/passes/autodiff/TinyModel.h"
#include <string>
#include <vector>

namespace tessera::testing {

/// A module as the sharding phase leaves it, taken apart.
class ShardedProgram {
public:
  /// Verifies the shardings of `module` and partitions it for every device;
  /// devices whose shares have equal shapes run one module. The test fails if
  /// that does.
  explicit ShardedProgram(mlir::ModuleOp module, bool padsExchanges = false);

  /// Whether there are programs to run.
  bool isBuilt() const { return built; }

  /// Cuts inputs as their arguments say, runs `function` everywhere and joins
  /// the results: what several devices have must be the same bits. Names are
  /// those of runProgram. None, after a failure of the test, on errors.
  Named run(llvm::StringRef function, const Named &inputs) const;

  /// Local programs, which may be fewer than devices.
  llvm::ArrayRef<mlir::OwningOpRef<mlir::ModuleOp>> modules() const {
    return local;
  }

private:
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> local;
  std::vector<mlir::ModuleOp> ofDevice;
  bool built = false;
};

/// Runs assign-shardings for `mesh`, such as "data=2,tensor=3", as for what
/// goes in `parts`; whether it could.
bool assignShardings(mlir::ModuleOp module, const std::string &mesh,
                     int64_t zero, bool parts = false, int64_t expertTensor = 0,
                     int64_t expertContext = 0);

/// The same on data × tensor devices, by a strategy that nobody would choose:
/// axes cut dimensions of state and inputs at random.
bool assignRandomShardings(mlir::ModuleOp module, int64_t data, int64_t tensor,
                           int64_t zero, uint64_t seed);

/// Marks all gathers and scatters that can go in parts; how many.
int64_t decomposeCollectives(mlir::ModuleOp module);

/// The same, and then `tensor` cuts every op and argument by itself in one of
/// the ways that it could, drawn at random: whatever they cost together.
bool assignRandomCuts(mlir::ModuleOp module, int64_t data, int64_t tensor,
                      int64_t zero, uint64_t seed);

/// Whether anything is cut along the axis.
bool isUsed(mlir::ModuleOp module, llvm::StringRef axis);

/// max |a - b| over all elements, as a part of the largest |b|.
double distance(const Tensor &a, const Tensor &b);

} // namespace tessera::testing
