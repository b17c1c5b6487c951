// Device code by nvcc, and the gates that it has to pass.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cuda {

/// What ptxas says of one kernel.
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
  std::string ptx; ///< what it was assembled from, for chips that come later
  std::vector<KernelResources> kernels;
};

/// $CUDACXX, nvcc on the path, or the one of $CUDA_HOME or /usr/local/cuda;
/// empty where there is none.
std::string findNvcc();

/// What `log`, the output of ptxas -v, says of kernels; in its order.
std::vector<KernelResources> readResources(llvm::StringRef log);

/// Counts the tensor-core instructions of each kernel in the cubin's code, by
/// the opcode in the low twelve bits of its instructions of sixteen bytes. The
/// opcodes are not documented; a test compiles a known number of them. An error
/// where the bytes are no ELF.
llvm::Error countTensorInstructions(Cubin &cubin);

/// Why a cubin must not ship: a kernel that spills registers, a warning C7510
/// to C7519, by which ptxas says that it had to serialize tensor-core
/// instructions, or C7508, by which it says that registers are not divided as
/// the kernel asks. Empty where there is no reason.
std::string findGateFailure(const Cubin &cubin, llvm::StringRef log);

/// A gate that fails.
class GateFailure : public llvm::ErrorInfo<GateFailure, llvm::StringError> {
public:
  using ErrorInfo::ErrorInfo;
  static char ID;
};

/// Compiles `text` for `arch` ("sm_80"). Errors: no nvcc, what nvcc complains
/// of, GateFailure.
llvm::Expected<Cubin> compileCubin(llvm::StringRef text, llvm::StringRef arch);

} // namespace tessera::cuda
