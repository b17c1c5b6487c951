// Matmuls by cuBLASLt: class Product of Library.h.
#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/cuda/Library.h"

#include <algorithm>
#include <optional>

namespace tessera::hal::cuda {
namespace {

using artifact::ElementType;
using artifact::GemmOperand;

int libraryType(ElementType type) {
  return type == ElementType::bf16 ? kLtBfloat16 : kLtFloat;
}

/// The column-major layout of a matrix with stride `major` along its `rows` and
/// `minor` along its `columns`, of which one must be 1: transposed if `minor`
/// is 1. Empty if elements overlap.
struct Lying {
  std::uint64_t rows = 0, columns = 0, leading = 0; ///< as stored
  bool isTransposed = false;
};
std::optional<Lying> lies(std::uint64_t rows, std::uint64_t columns,
                          std::uint64_t major, std::uint64_t minor) {
  // The stride along an extent of 1 is irrelevant.
  if (minor == 1 && (major >= columns || rows == 1))
    return Lying{columns, rows, std::max(major, columns), true};
  if (major == 1 && (minor >= rows || columns == 1))
    return Lying{rows, columns, std::max(minor, rows), false};
  return std::nullopt;
}

} // namespace

StatusOr<std::unique_ptr<Product>>
Product::create(std::shared_ptr<const Library> library,
                const artifact::Kernel &kernel,
                const ProductAlignment &alignment) {
  std::unique_ptr<Product> product(new Product(std::move(library)));
  if (!product->arrange(kernel, alignment))
    return std::unique_ptr<Product>();
  TESSERA_RETURN_IF_ERROR(product->library->gpu->enter([&] {
    TESSERA_RETURN_IF_ERROR(product->describe());
    return product->find();
  }));
  return product;
}

Product::~Product() {
  (void)library->gpu->enter([&] {
    for (const Matrix *matrix : {&a, &b, &d})
      if (matrix->layout)
        (void)library->layoutDestroy(matrix->layout);
    if (operation)
      (void)library->operationDestroy(operation);
    return Status::success();
  });
}

bool Product::arrange(const artifact::Kernel &kernel,
                      const ProductAlignment &alignment) {
  const artifact::Gemm &gemm = *kernel.gemm();
  batches = gemm.batches();
  beta = gemm.accumulates() ? 1.0f : 0.0f;
  const auto typeOf = [&](const GemmOperand &operand) {
    return kernel.element_types()->Get(operand.buffer());
  };
  const auto place = [&](Matrix &matrix, const GemmOperand &operand,
                         std::uint64_t rows, std::uint64_t columns,
                         std::uint32_t aligned) {
    const auto lying = lies(rows, columns, operand.major(), operand.minor());
    if (!lying)
      return false;
    const ElementType type = typeOf(operand);
    matrix = {operand.buffer(),
              operand.offset() * artifact::elementBytes(type),
              lying->rows,
              lying->columns,
              lying->leading,
              operand.batch(),
              lying->isTransposed,
              libraryType(type),
              aligned,
              nullptr};
    return true;
  };
  const GemmOperand &lhs = *gemm.lhs(), &rhs = *gemm.rhs(),
                    &result = *gemm.result();
  const ElementType in = typeOf(lhs), out = typeOf(result);
  if (typeOf(rhs) != in || (in == ElementType::f32 && out != in) ||
      !place(d, result, gemm.m(), gemm.n(), alignment.result) ||
      (batches > 1 && d.batch < d.leading * (d.columns - 1) + d.rows))
    return false;
  // Both operands have k along their columns: result = lhs · rhsᵀ and
  // resultᵀ = rhs · lhsᵀ.
  Matrix &left = d.isTransposed ? b : a, &right = d.isTransposed ? a : b;
  if (!place(left, lhs, gemm.m(), gemm.k(), alignment.lhs) ||
      !place(right, rhs, gemm.n(), gemm.k(), alignment.rhs))
    return false;
  b.isTransposed = !b.isTransposed;
  return true;
}

Status Product::describe() {
  const auto set = [&](int attribute, bool isTransposed) {
    const std::int32_t value = isTransposed ? kLtTransposed : kLtPlain;
    return library->check(
        library->operationSet(operation, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  };
  TESSERA_RETURN_IF_ERROR(library->check(
      library->operationCreate(&operation, kLtComputeFloat, kLtFloat),
      "cublasLtMatmulDescCreate"));
  TESSERA_RETURN_IF_ERROR(set(kLtTransposeA, a.isTransposed));
  TESSERA_RETURN_IF_ERROR(set(kLtTransposeB, b.isTransposed));
  for (Matrix *matrix : {&a, &b, &d}) {
    TESSERA_RETURN_IF_ERROR(library->check(
        library->layoutCreate(&matrix->layout, matrix->type, matrix->rows,
                              matrix->columns,
                              static_cast<std::int64_t>(matrix->leading)),
        "cublasLtMatrixLayoutCreate"));
    if (batches == 1)
      continue;
    const auto count = static_cast<std::int32_t>(batches);
    const auto stride = static_cast<std::int64_t>(matrix->batch);
    LtStatus status =
        library->layoutSet(matrix->layout, kLtBatches, &count, sizeof(count));
    if (status == 0)
      status = library->layoutSet(matrix->layout, kLtBatchStride, &stride,
                                  sizeof(stride));
    TESSERA_RETURN_IF_ERROR(
        library->check(status, "cublasLtMatrixLayoutSetAttribute"));
  }
  return Status::success();
}

Status Product::setPreference(LtPreference preference) const {
  const std::uint64_t workspace = library->workspaceSize;
  const struct {
    int attribute;
    const void *value;
    std::size_t bytes;
  } settings[] = {
      {kLtMaxWorkspaceBytes, &workspace, sizeof(workspace)},
      {kLtReductions, &kLtReduceInComputeType, sizeof(kLtReduceInComputeType)},
      {kLtAlignmentA, &a.alignment, sizeof(a.alignment)},
      {kLtAlignmentB, &b.alignment, sizeof(b.alignment)},
      {kLtAlignmentC, &d.alignment, sizeof(d.alignment)},
      {kLtAlignmentD, &d.alignment, sizeof(d.alignment)},
  };
  for (const auto &[attribute, value, bytes] : settings)
    TESSERA_RETURN_IF_ERROR(library->check(
        library->preferenceSet(preference, attribute, value, bytes),
        "cublasLtMatmulPreferenceSetAttribute"));
  return Status::success();
}

Status Product::find() {
  LtPreference preference = nullptr;
  TESSERA_RETURN_IF_ERROR(library->check(library->preferenceCreate(&preference),
                                         "cublasLtMatmulPreferenceCreate"));
  std::array<LtHeuristic, kMost> found{};
  int count = 0;
  Status status = setPreference(preference);
  if (status.ok())
    status = library->check(library->heuristic(library->handle, operation,
                                               a.layout, b.layout, d.layout,
                                               d.layout, preference, int(kMost),
                                               found.data(), &count),
                            "cublasLtMatmulAlgoGetHeuristic");
  (void)library->preferenceDestroy(preference);
  TESSERA_RETURN_IF_ERROR(status);
  for (int i = 0; i < std::min(count, int(kMost)); ++i)
    if (found[i].status == 0 &&
        found[i].workspaceBytes <= library->workspaceSize)
      algorithms.push_back(found[i].algorithm);
  return Status::success();
}

Status Product::enqueue(std::size_t way, void *const *arguments) const {
  const auto address = [&](const Matrix &matrix) {
    return static_cast<std::byte *>(arguments[matrix.buffer]) + matrix.offset;
  };
  const float alpha = 1;
  return library->check(
      library->multiply(
          library->handle, operation, &alpha, address(a), a.layout, address(b),
          b.layout, &beta, address(d), d.layout, address(d), d.layout,
          &algorithms[way],
          reinterpret_cast<void *>( // NOLINT(performance-no-int-to-ptr)
              static_cast<std::uintptr_t>(library->workspace.get())),
          library->workspaceSize, library->gpu->stream()),
      "cublasLtMatmul");
}

} // namespace tessera::hal::cuda
