// cuBLASLt, loaded at run time, and matmuls by it.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/hal/cuda/Gpu.h"
#include "runtime/hal/cuda/LibraryApi.h"

#include <array>
#include <memory>
#include <vector>

namespace tessera::hal::cuda {

class Library {
public:
  /// Loads libcublasLt.so.13 or .12, or what the environment variable
  /// TESSERA_LIBCUBLASLT names, and takes its workspace: 32 MiB of device
  /// memory from compute capability 9.0 on, 4 MiB before.
  static StatusOr<std::shared_ptr<Library>>
  load(const std::shared_ptr<Gpu> &gpu);
  ~Library();
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  /// "cuBLASLt 13.1.0"
  const std::string &name() const { return label; }
  std::uint64_t workspaceBytes() const { return workspaceSize; }

private:
  friend class Product;
  explicit Library(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}
  Status findFunctions(void *library, const std::string &path);
  /// The error of a call: "cublasLtMatmul: not supported (15)".
  Status check(LtStatus status, const char *function) const;

  std::shared_ptr<Gpu> gpu;
  std::string label;
  LtHandle handle = nullptr;
  Owned<Address> workspace;
  std::uint64_t workspaceSize = 0;
  const char *(*statusText)(LtStatus) = nullptr;
  // NOLINTBEGIN(bugprone-macro-parentheses): declarations
#define TESSERA_CUBLASLT_MEMBER(member, symbol, parameters)                    \
  LtStatus(*member) parameters = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_MEMBER)
#undef TESSERA_CUBLASLT_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)
};

/// What every address of an operand is a multiple of, in bytes.
struct ProductAlignment {
  std::uint32_t lhs = 256, rhs = 256, result = 256;
};

/// One artifact::Gemm by the library: sums in fp32, without TF32, with the
/// algorithms that the library ranks best.
///
/// The library's matrices have columns without gaps. A result of rows without
/// gaps is, to it, the transposed one: resultᵀ = rhs · lhsᵀ, so operands are
/// exchanged; and each is passed as stored or as transposed, depending on which
/// of its two strides is 1.
class Product {
public:
  /// Null if the library does not support the matmul: operands of two types,
  /// fp32 operands with a bf16 result, elements that overlap.
  static StatusOr<std::unique_ptr<Product>>
  create(std::shared_ptr<const Library> library, const artifact::Kernel &kernel,
         const ProductAlignment &alignment);
  ~Product();
  Product(const Product &) = delete;
  Product &operator=(const Product &) = delete;

  /// Algorithms to compute it, at most kMost, by estimated time.
  std::size_t ways() const { return algorithms.size(); }
  static constexpr std::size_t kMost = 4;
  /// Puts it on the GPU's stream. The addresses are those of the kernel's
  /// arguments in the order of Kernel.access. Allocates nothing and can be
  /// captured.
  Status enqueue(std::size_t way, void *const *arguments) const;

private:
  /// A matrix as the library sees it.
  struct Matrix {
    std::uint32_t buffer = 0;
    std::uint64_t offset = 0; ///< in bytes
    std::uint64_t rows = 0, columns = 0, leading = 0, batch = 0;
    bool isTransposed = false; ///< against the product
    int type = kLtFloat;
    std::uint32_t alignment = 0;
    LtLayout layout = nullptr;
  };

  explicit Product(std::shared_ptr<const Library> library)
      : library(std::move(library)) {}
  bool arrange(const artifact::Kernel &kernel,
               const ProductAlignment &alignment);
  Status describe();
  Status find();
  Status setPreference(LtPreference preference) const;

  std::shared_ptr<const Library> library;
  std::uint64_t batches = 1;
  float beta = 0;
  Matrix a, b, d;
  LtOperation operation = nullptr;
  std::vector<LtAlgorithm> algorithms;
};

} // namespace tessera::hal::cuda
