// Indices as linear forms: how an element of one tensor finds the element of
// another through views, over an iteration space that is divided on demand.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <optional>

namespace tessera {

/// constant + Σ coefficients[k] · i_k, where i_k is the index along dimension k
/// of an iteration space. Nothing is negative: views never have negative
/// strides.
struct Linear {
  int64_t constant = 0;
  llvm::SmallVector<int64_t, 4> coefficients;

  /// The form `i_dim` in a space of `rank` dimensions.
  static Linear index(unsigned dim, unsigned rank);
  static Linear zero(unsigned rank);

  Linear operator*(int64_t factor) const;
  Linear operator+(const Linear &other) const;
  bool operator==(const Linear &other) const {
    return constant == other.constant && coefficients == other.coefficients;
  }
  bool dependsOn(unsigned dim) const { return coefficients[dim] != 0; }
  /// The largest value over a space of these sizes (none of them 0).
  int64_t max(llvm::ArrayRef<int64_t> sizes) const;
};

/// How an iteration space must be divided before an index is a linear form.
struct Division {
  enum Kind { split, cut } kind;
  unsigned dim;
  /// split: size of the new inner dimension (it divides the old one);
  /// cut: first index of the second part.
  int64_t at;
};

/// The forms of `form` after `division`; `part` is 0 or 1, the part of a cut.
Linear divide(const Linear &form, const Division &division, int part);
/// The same for the sizes of the space.
llvm::SmallVector<int64_t> divide(llvm::ArrayRef<int64_t> sizes,
                                  const Division &division, int part);

/// Row-major index of the element at `indices`.
Linear linearize(llvm::ArrayRef<Linear> indices, llvm::ArrayRef<int64_t> shape,
                 unsigned rank);

/// The indices along each dimension of `shape` of the element with row-major
/// index `form`. Nullopt if they are not linear forms over a space of `sizes`:
/// then `wanted` is the division that helps, if any.
std::optional<llvm::SmallVector<Linear>>
delinearize(const Linear &form, llvm::ArrayRef<int64_t> shape,
            llvm::ArrayRef<int64_t> sizes, std::optional<Division> &wanted);

/// The part of [0, boundaries.back()) that `form` always falls into, where part
/// p ends at boundaries[p]. Nullopt if it crosses a boundary: then `wanted` is
/// the division that helps.
std::optional<unsigned> findPart(const Linear &form,
                                 llvm::ArrayRef<int64_t> boundaries,
                                 llvm::ArrayRef<int64_t> sizes,
                                 std::optional<Division> &wanted);

} // namespace tessera
