#include "passes/fusion/IndexSpace.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace tessera;

Linear Linear::index(unsigned dim, unsigned rank) {
  Linear form = zero(rank);
  form.coefficients[dim] = 1;
  return form;
}

Linear Linear::zero(unsigned rank) {
  Linear form;
  form.coefficients.assign(rank, 0);
  return form;
}

Linear Linear::operator*(int64_t factor) const {
  Linear form = *this;
  form.constant *= factor;
  for (int64_t &c : form.coefficients)
    c *= factor;
  return form;
}

Linear Linear::operator+(const Linear &other) const {
  Linear form = *this;
  form.constant += other.constant;
  for (auto [mine, theirs] : zip_equal(form.coefficients, other.coefficients))
    mine += theirs;
  return form;
}

int64_t Linear::max(ArrayRef<int64_t> sizes) const {
  int64_t result = constant;
  for (auto [c, size] : zip_equal(coefficients, sizes))
    result += c * (size - 1);
  return result;
}

//===--- dividing ---------------------------------------------------------===//

Linear tessera::divide(const Linear &form, const Division &division, int part) {
  Linear result = form;
  int64_t c = form.coefficients[division.dim];
  if (division.kind == Division::cut) {
    if (part == 1)
      result.constant += c * division.at;
    return result;
  }
  result.coefficients[division.dim] = c * division.at;
  result.coefficients.insert(result.coefficients.begin() + division.dim + 1, c);
  return result;
}

SmallVector<int64_t> tessera::divide(ArrayRef<int64_t> sizes,
                                     const Division &division, int part) {
  SmallVector<int64_t> result(sizes);
  int64_t &size = result[division.dim];
  if (division.kind == Division::cut) {
    size = part == 0 ? division.at : size - division.at;
    return result;
  }
  size /= division.at;
  result.insert(result.begin() + division.dim + 1, division.at);
  return result;
}

//===--- row-major indices ------------------------------------------------===//

Linear tessera::linearize(ArrayRef<Linear> indices, ArrayRef<int64_t> shape,
                          unsigned rank) {
  Linear form = Linear::zero(rank);
  for (auto [index, size] : zip_equal(indices, shape))
    form = form * size + index;
  return form;
}

// `form` = quotient · period + remainder with remainder < period throughout?
static bool divideForm(const Linear &form, int64_t period,
                       ArrayRef<int64_t> sizes, Linear &quotient,
                       Linear &remainder) {
  quotient = remainder = form;
  quotient.constant = form.constant / period;
  remainder.constant = form.constant % period;
  for (size_t k = 0; k < sizes.size(); ++k) {
    int64_t c = form.coefficients[k];
    quotient.coefficients[k] = sizes[k] > 1 ? c / period : 0;
    remainder.coefficients[k] = sizes[k] > 1 ? c % period : 0;
  }
  return remainder.max(sizes) < period;
}

// The division that makes `remainder` stay below `period`: its largest step is
// split where it wraps around, or the space is divided there.
static std::optional<Division>
divisionFor(const Linear &remainder, int64_t period, ArrayRef<int64_t> sizes) {
  std::optional<unsigned> largest;
  for (size_t k = 0; k < sizes.size(); ++k)
    if (remainder.coefficients[k] &&
        (!largest ||
         remainder.coefficients[k] > remainder.coefficients[*largest]))
      largest = k;
  if (!largest)
    return {};
  int64_t c = remainder.coefficients[*largest], size = sizes[*largest];
  if (remainder.constant == 0 && period % c == 0 && period / c < size) {
    int64_t inner = period / c;
    if (size % inner == 0)
      return Division{Division::split, *largest, inner};
    return Division{Division::cut, *largest, size / inner * inner};
  }
  int64_t at = (period - remainder.constant + c - 1) / c;
  if (at <= 0 || at >= size)
    return {};
  return Division{Division::cut, *largest, at};
}

std::optional<SmallVector<Linear>>
tessera::delinearize(const Linear &form, ArrayRef<int64_t> shape,
                     ArrayRef<int64_t> sizes, std::optional<Division> &wanted) {
  SmallVector<Linear> indices;
  Linear rest = form;
  int64_t period = 1;
  for (int64_t size : shape)
    period *= size;
  for (int64_t size : shape) {
    period /= size;
    Linear quotient, remainder;
    if (!divideForm(rest, period, sizes, quotient, remainder)) {
      wanted = divisionFor(remainder, period, sizes);
      return {};
    }
    indices.push_back(quotient);
    rest = remainder;
  }
  return indices;
}

std::optional<unsigned> tessera::findPart(const Linear &form,
                                          ArrayRef<int64_t> boundaries,
                                          ArrayRef<int64_t> sizes,
                                          std::optional<Division> &wanted) {
  int64_t last = form.max(sizes);
  int64_t begin = 0;
  for (auto [part, end] : enumerate(boundaries)) {
    if (form.constant >= begin && last < end)
      return part;
    begin = end;
  }
  // The first boundary inside the range, reached by the largest step that can.
  const int64_t *boundary = find_if(
      boundaries, [&](int64_t b) { return b > form.constant && b <= last; });
  if (boundary == boundaries.end())
    return {};
  std::optional<Division> cut;
  int64_t step = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    int64_t c = form.coefficients[k];
    if (c <= step || sizes[k] <= 1)
      continue;
    int64_t at = std::max<int64_t>((*boundary - form.constant) / c, 1);
    step = c;
    cut = Division{Division::cut, static_cast<unsigned>(k),
                   std::min(at, sizes[k] - 1)};
  }
  wanted = cut;
  return {};
}
