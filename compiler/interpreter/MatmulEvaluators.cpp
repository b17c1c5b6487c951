// Contractions, reductions, gather and scatter, random numbers.
#include "compiler/interpreter/Evaluators.h"
#include "compiler/interpreter/Philox.h"
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphQuantOps.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/support/NormalFloat.h"
#include "runtime/support/SuperBlocks.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::interpreter;

using Result = llvm::Expected<Tensor>;

// Steps in `tensor` from one value of each label to the next; 0 for labels
// that `term` does not have.
static SmallVector<int64_t> stepsOf(StringRef labels, StringRef term,
                                    const Tensor &tensor) {
  SmallVector<int64_t> strides = stridesOf(tensor.shape), steps;
  for (char label : labels)
    steps.push_back(term.contains(label) ? strides[term.find(label)] : 0);
  return steps;
}

static int64_t dot(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  int64_t sum = 0;
  for (auto [x, y] : llvm::zip_equal(a, b))
    sum += x * y;
  return sum;
}

static Result evaluateEinsum(EinsumOp op, Operands in) {
  const Tensor &lhs = *in[0], &rhs = *in[1];
  Einsum eq = llvm::cantFail(Einsum::parse(op.getEquation()));
  std::string summed = eq.summed();
  SmallVector<int64_t> terms;
  for (char label : summed)
    terms.push_back(Einsum::sizeOf(label, eq.lhs, lhs.shape));
  SmallVector<int64_t> lhsOut = stepsOf(eq.out, eq.lhs, lhs),
                       rhsOut = stepsOf(eq.out, eq.rhs, rhs);
  SmallVector<int64_t> lhsSum = stepsOf(summed, eq.lhs, lhs),
                       rhsSum = stepsOf(summed, eq.rhs, rhs);
  Tensor result(resultShape(op));
  // All columns of a row at a time, each with its terms in order: the order of
  // the sums is that of one after another, and memory is read in sequence.
  ArrayRef<int64_t> rows(result.shape);
  int64_t columns = 1, lhsStep = 0, rhsStep = 0;
  if (!rows.empty()) {
    columns = rows.back();
    lhsStep = lhsOut.pop_back_val();
    rhsStep = rhsOut.pop_back_val();
    rows = rows.drop_back();
  }
  double *sums = result.data.data();
  forEachIndex(rows, [&](ArrayRef<int64_t> row) {
    const double *x = lhs.data.data() + dot(row, lhsOut),
                 *y = rhs.data.data() + dot(row, rhsOut);
    forEachIndex(terms, [&](ArrayRef<int64_t> k) {
      const double *a = x + dot(k, lhsSum), *b = y + dot(k, rhsSum);
      for (int64_t j = 0; j < columns; ++j)
        sums[j] += a[j * lhsStep] * b[j * rhsStep];
    });
    sums += columns;
  });
  return result;
}

static double startOf(ReduceKind kind) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return kind == ReduceKind::sum   ? 0.0
         : kind == ReduceKind::max ? -infinity
                                   : infinity;
}

static double combine(ReduceKind kind, double a, double b) {
  if (kind == ReduceKind::sum)
    return a + b;
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  return kind == ReduceKind::max ? std::max(a, b) : std::min(a, b);
}

static Result evaluateReduce(ReduceOp op, Operands in) {
  Tensor result(resultShape(op), startOf(op.getKind()));
  SmallVector<int64_t> to;
  forEachIndex(in[0]->shape, [&](ArrayRef<int64_t> i) {
    to.clear();
    for (auto [dim, index] : llvm::enumerate(i))
      if (!llvm::is_contained(op.getDims(), static_cast<int64_t>(dim)))
        to.push_back(index);
    result.at(to) = combine(op.getKind(), result.at(to), in[0]->at(i));
  });
  return result;
}

// Row `ids[i]` of a table of `rows`, or the error that it has none.
static llvm::Expected<int64_t> rowOf(Operation *op, const Tensor &ids,
                                     int64_t i, int64_t rows) {
  auto row = static_cast<int64_t>(ids.data[i]);
  if (row < 0 || row >= rows)
    return fail(op, "id " + llvm::Twine(row) + " is outside a table of " +
                        llvm::Twine(rows) + " rows");
  return row;
}

static Result evaluateEmbedding(EmbeddingOp op, Operands in) {
  const Tensor &table = *in[0], &ids = *in[1];
  int64_t width = table.shape[1];
  Tensor result(resultShape(op));
  for (int64_t i = 0; i < ids.size(); ++i) {
    llvm::Expected<int64_t> row = rowOf(op, ids, i, table.shape[0]);
    if (!row)
      return row.takeError();
    std::copy_n(table.data.begin() + *row * width, width,
                result.data.begin() + i * width);
  }
  return result;
}

static Result evaluateDequantize(DequantizeOp op, Operands in) {
  tessera::QuantizedLayout layout = op.getLayout();
  int64_t micropanel = tessera::kMicropanel;
  Tensor result(resultShape(op));
  int64_t stack = result.shape.size() == 3 ? result.shape[0] : 1,
          rows = layout.rows / stack;
  for (int64_t n = 0; n < layout.rows; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      double &to = // rows of a stack follow each other
          result.data[op.getTransposed()
                          ? (n / rows * layout.columns + k) * rows + n % rows
                          : n * layout.columns + k];
      if (!layout
               .hasScales()) { // in the order [micropanels, columns / 2, 16, 2]
        int64_t depth = layout.words() * layout.perWord();
        to = in[0]->data[n / micropanel * depth * micropanel +
                         k / 2 * 2 * micropanel + n % micropanel * 2 + k % 2];
        continue;
      }
      if (layout.superBlocks) {
        auto reader = [&](const Tensor &from) {
          return [&](int64_t i) {
            return static_cast<uint32_t>(static_cast<int64_t>(
                from.at({n / micropanel, i, n % micropanel})));
          };
        };
        to = tessera::superBlockWeight(layout, k, reader(*in[0]),
                                       reader(*in[1]));
        continue;
      }
      double word =
          in[0]->at({n / micropanel, k / layout.perWord(), n % micropanel});
      int64_t group = k / layout.group, scales = layout.scalesAt(group);
      auto scaleAt = [&](int64_t i) {
        return in[1]->at({n / micropanel, i, n % micropanel});
      };
      auto scaleWordAt = [&](int64_t i) {
        return static_cast<uint32_t>(static_cast<int64_t>(scaleAt(i)));
      };
      double scale =
          layout.nf4()
              ? tessera::normalFloatAbsmax(layout, n, group, scaleWordAt)
          : layout.mxfp4() ? tessera::mxfp4Scale(tessera::mxfp4Exponent(
                                 scaleWordAt(group / 4), group))
                           : scaleAt(scales);
      double zero =
          layout.zeros ? in[1]->at({n / micropanel, scales + 1, n % micropanel})
                       : 0;
      double q = quantizedAt(
          layout, static_cast<uint32_t>(static_cast<int64_t>(word)), k);
      to = scale * (q - zero);
    }
  return result;
}

static Result evaluateDequantizeRows(DequantizeRowsOp op, Operands in) {
  Tensor result = *in[0];
  int64_t width = result.shape.back();
  for (int64_t i = 0; i < result.size(); ++i)
    result.data[i] *= in[1]->data[i / width];
  return result;
}

static Result evaluateScatterAdd(ScatterAddOp op, Operands in) {
  Tensor result = *in[0];
  const Tensor &ids = *in[1], &updates = *in[2];
  int64_t width = result.shape[1];
  for (int64_t i = 0; i < ids.size(); ++i) {
    llvm::Expected<int64_t> row = rowOf(op, ids, i, result.shape[0]);
    if (!row)
      return row.takeError();
    for (int64_t j = 0; j < width; ++j)
      result.data[*row * width + j] += updates.data[i * width + j];
  }
  return result;
}

static Result evaluateScatterRows(ScatterRowsOp op, Operands in) {
  Tensor result = *in[0];
  const Tensor &ids = *in[1], &updates = *in[2];
  int64_t width = result.shape[1];
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids.data[i] < 0)
      continue;
    llvm::Expected<int64_t> row = rowOf(op, ids, i, result.shape[0]);
    if (!row)
      return row.takeError();
    std::copy_n(updates.data.begin() + i * width, width,
                result.data.begin() + *row * width);
  }
  return result;
}

// The upper 24 bits of a word, of which every value is a float.
static double upperBits(uint32_t word) {
  return static_cast<double>(word >> 8);
}

static double randomElement(RandomKind kind, const PhiloxCounter &words,
                            unsigned lane) {
  constexpr double unit = 0x1p-24;
  if (kind == RandomKind::uniform)
    return upperBits(words[lane]) * unit;
  unsigned pair = lane & ~1u;
  double radius =
      std::sqrt(-2.0 * std::log((upperBits(words[pair]) + 1.0) * unit));
  double angle = 2.0 * std::numbers::pi * upperBits(words[pair + 1]) * unit;
  return radius * (lane % 2 ? std::sin(angle) : std::cos(angle));
}

static Result evaluateRandom(RandomOp op, Operands in) {
  Tensor result(resultShape(op));
  PhiloxKey key = philoxKey(static_cast<int64_t>(in[0]->data[0]),
                            static_cast<uint32_t>(op.getStream()));
  auto step = static_cast<int64_t>(in[1]->data[0]);
  int64_t entries = result.shape.empty() ? 1 : result.shape[0];
  int64_t offset = op.getOffset() ? static_cast<int64_t>(in[2]->data[0]) : 0;
  for (int64_t i = 0; i < result.size(); ++i) {
    auto index = static_cast<uint64_t>(offset * (result.size() / entries) + i);
    result.data[i] =
        randomElement(op.getKind(), philoxWords(key, index, step), index % 4);
  }
  return result;
}

void tessera::interpreter::addMatmulEvaluators(EvaluatorTable &table) {
  table.add(evaluateEinsum);
  table.add(evaluateReduce);
  table.add(evaluateEmbedding);
  table.add(evaluateDequantize);
  table.add(evaluateDequantizeRows);
  table.add(evaluateScatterAdd);
  table.add(evaluateScatterRows);
  table.add(evaluateRandom);
}
