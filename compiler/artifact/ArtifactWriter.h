// From a plan and its machine code to the bytes of an artifact
// (runtime/artifact/Artifact.fbs). The only place where the compiler meets the
// runtime's schema.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "runtime/device/TensorMap.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <set>
#include <string>
#include <vector>

namespace tessera {

/// Machine code of kernels for one target.
struct CodeObject {
  std::string target;                ///< "cpu:avx512bf16", "cuda:sm_80"
  std::vector<std::string> features; ///< cpuid names; all must be present
  std::string elf;                   ///< a shared object or a cubin
  llvm::StringMap<int64_t> scratch;  ///< kernel → bytes a thread needs
  std::vector<std::string> kernels;  ///< those that it holds; empty: all
};

/// How a GPU launches a kernel, and what its compiler said of the code: the
/// schema's GpuKernel, which has the units.
struct GpuKernel {
  uint32_t threads = 0, sharedBytes = 0;
  uint32_t registers = 0, staticSharedBytes = 0, stackBytes = 0, spillBytes = 0;
  uint32_t hmma = 0, hgmma = 0;
  std::string source; ///< CUDA C++
  /// One of the tensor maps: a buffer of the kernel, and a map whose `base` is
  /// in bytes from its start on.
  struct Map {
    uint32_t buffer;
    device::TensorBoxes boxes;
  };
  std::vector<Map> maps;
  std::set<unsigned> aligned; ///< buffers that must begin at 16-byte multiples
};

/// A planned module and its code, for one kind of device.
struct DevicePart {
  std::string device; ///< "cpu", "cuda:sm_80"
  /// Its kernels are described by the tile.kernel ops of any one target, which
  /// must still be in nested modules.
  mlir::ModuleOp module;
  std::vector<CodeObject> code;
  llvm::StringMap<GpuKernel> gpu; ///< by kernel; a CPU's have none
};

/// What the artifact says about itself.
struct ArtifactInfo {
  std::string compilerVersion;
  std::string programHash;
  std::string modelConfig; ///< config.json as given
  std::string recipe;      ///< resolved, as YAML
  std::string rebuildCommand;
  std::vector<std::pair<std::string, std::string>>
      sources; ///< (file name, text)
};

/// What ranks with shares of equal shapes run: one part for each kind of
/// device. The modules say of what mesh (dist.mesh) and how state and inputs
/// are cut.
struct SharePart {
  std::vector<int64_t> ranks; ///< increasing; every rank is in one share
  std::vector<DevicePart> devices;
};

/// Serializes the plan programs of every part. The parts of a share must have
/// planned the same state; an error says which tensor differs. All shares must
/// be of one mesh, and do the same together in the same order.
llvm::Expected<std::string> writeArtifact(llvm::ArrayRef<SharePart> shares,
                                          const ArtifactInfo &info);
/// Of one share, which all ranks have: one rank, unless there is a mesh.
llvm::Expected<std::string> writeArtifact(llvm::ArrayRef<DevicePart> parts,
                                          const ArtifactInfo &info);

} // namespace tessera
