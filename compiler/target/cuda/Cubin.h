// Device code by nvcc, and the checks that it has to pass.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cuda {

/// What ptxas reports about one kernel.
struct KernelResources {
  std::string name;
  int64_t registers = 0;   ///< of a thread
  int64_t sharedBytes = 0; ///< static ones, of a block
  int64_t stackBytes = 0;  ///< of a thread
  int64_t spillBytes = 0;  ///< stored and loaded
  int64_t hmma = 0;        ///< mma.sync instructions (HMMA) in its code
  int64_t hgmma = 0;       ///< wgmma instructions (HGMMA)
};

struct Cubin {
  std::string bytes;
  std::string ptx; ///< its source, for later chips
  std::vector<KernelResources> kernels;
};

/// $CUDACXX, nvcc on the path, or the one of $CUDA_HOME or /usr/local/cuda;
/// empty if there is none.
std::string findNvcc();

/// What `log`, the output of ptxas -v, reports about kernels, in its order.
std::vector<KernelResources> readResources(llvm::StringRef log);

/// Counts the tensor-core instructions of each kernel in the cubin's code, by
/// the opcode in the low twelve bits of its instructions of sixteen bytes. The
/// opcodes are not documented; a test compiles a known number of them. Fails if
/// the bytes are not ELF.
llvm::Error countTensorInstructions(Cubin &cubin);

/// Why a cubin is rejected: a kernel that spills registers, a warning C7510 to
/// C7519, by which ptxas reports serialized tensor-core instructions, or C7508,
/// by which it reports that registers are not divided as the kernel requests.
/// Empty if it is accepted.
std::string findGateFailure(const Cubin &cubin, llvm::StringRef log);

/// A check that failed.
class GateFailure : public llvm::ErrorInfo<GateFailure, llvm::StringError> {
public:
  using ErrorInfo::ErrorInfo;
  static char ID;
};

/// Compiles `text` for `arch` ("sm_80"). Errors: no nvcc, nvcc's diagnostics,
/// GateFailure.
llvm::Expected<Cubin> compileCubin(llvm::StringRef text, llvm::StringRef arch);

} // namespace tessera::cuda
