// What productions build graphs with: random choices, values with ranges,
// scopes.
#pragma once
#include "dialects/graph/Build.h"
#include "test/metamorphic/Generate.h"
#include <optional>
#include <random>

namespace tessera::metamorphic {

using Shape = llvm::SmallVector<int64_t>;

/// Values that a tensor's elements can have, both ends included.
struct Interval {
  double low, high;

  double magnitude() const { return std::max(std::abs(low), std::abs(high)); }
  bool within(const Interval &other) const {
    return low >= other.low && high <= other.high;
  }
  Interval operator+(const Interval &y) const {
    return {low + y.low, high + y.high};
  }
  Interval operator-(const Interval &y) const {
    return {low - y.high, high - y.low};
  }
  Interval operator*(const Interval &y) const;
  Interval operator|(const Interval &y) const {
    return {std::min(low, y.low), std::max(high, y.high)};
  }
};

/// [-size, size]
inline Interval around(double size) { return {-size, size}; }

/// A value in scope.
struct Entry {
  mlir::Value value;
  Interval range;

  mlir::RankedTensorType type() const { return graph::tensorType(value); }
  llvm::ArrayRef<int64_t> shape() const { return type().getShape(); }
  int64_t rank() const { return type().getRank(); }
  int64_t count() const { return type().getNumElements(); }
  mlir::Type element() const { return type().getElementType(); }
  bool isFloat() const { return mlir::isa<mlir::FloatType>(element()); }
  bool isBool() const { return element().isInteger(1); }
  /// Integers that arithmetic takes: neither i1 nor ui8.
  bool isInteger() const { return element().isSignlessInteger() && !isBool(); }
};

class Generator {
public:
  Generator(mlir::MLIRContext *context, uint64_t seed);
  mlir::OwningOpRef<mlir::ModuleOp> run();

  const Kind kind;
  mlir::OpBuilder builder;
  graph::Emitter e;

  //===--- choices --------------------------------------------------------===//

  /// In [0, count).
  int64_t below(int64_t count) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(count));
  }
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + below(high - low + 1);
  }
  bool chance(int64_t percent) { return below(100) < percent; }
  /// A multiple of 1/8 in [low, high]: every float type has it, so that
  /// folding a conversion of it changes nothing.
  double number(double low, double high);
  template <typename T> T oneOf(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

  //===--- types ----------------------------------------------------------===//

  mlir::Type f32() { return builder.getF32Type(); }
  mlir::Type i32() { return builder.getI32Type(); }
  mlir::Type floatType();
  mlir::Type integerType();
  /// One of the graph's few sizes: tensors of one graph then fit each other.
  int64_t size();
  /// At most `largest` (which is at least 1).
  int64_t sizeUpTo(int64_t largest);
  Shape shape(int64_t rank);
  mlir::RankedTensorType tensor(llvm::ArrayRef<int64_t> shape,
                                mlir::Type element) {
    return mlir::RankedTensorType::get(shape, element);
  }

  //===--- values ---------------------------------------------------------===//

  /// Puts a value into scope. A float that could grow too large comes back
  /// scaled down.
  Entry add(mlir::Value value, Interval range);
  /// A new argument of the function that is being built.
  Entry argument(mlir::RankedTensorType type, Interval range);
  Entry argument(mlir::RankedTensorType type);
  Entry splat(mlir::RankedTensorType type, double value);
  /// One of the values in scope, recent ones rather than old ones; none if
  /// `wanted` wants none.
  std::optional<Entry> find(llvm::function_ref<bool(const Entry &)> wanted);
  /// A float tensor of at least this rank, from the scope or new.
  Entry floats(int64_t minRank = 0);
  Entry integers();
  /// A value of this type: of the scope, under another shape, broadcast,
  /// constant or new.
  Entry like(mlir::RankedTensorType type);
  /// Integers in [0, count).
  Entry ids(llvm::ArrayRef<int64_t> shape, int64_t count);
  /// A number of `low` or more made of `x`, a float tensor.
  Entry positive(Entry x, double low);
  /// A number with at most this magnitude made of `x`, a float tensor.
  Entry limited(Entry x, double magnitude);
  Interval floatRange();
  Interval integerRange(mlir::Type element);

  //===--- structure ------------------------------------------------------===//

  /// Whether this many scalar operations more may be spent; takes them if so.
  bool afford(int64_t work);
  /// Adds about `count` ops by random productions.
  void grow(int64_t count);
  /// What `body` adds to the scope is gone afterwards.
  void inScope(llvm::function_ref<void()> body);
  /// A private function of the given arguments, filled by `body`, which
  /// returns the results.
  mlir::func::FuncOp block(
      llvm::ArrayRef<Entry> like,
      llvm::function_ref<llvm::SmallVector<Entry>(llvm::ArrayRef<Entry>)> body);
  /// The values in scope that nobody reads yet, at most `most`.
  llvm::SmallVector<Entry> unused(size_t most);
  const std::vector<Entry> &scope() const { return pool; }
  /// Loops and blocks around the place that is being filled.
  int depth = 0;

private:
  /// A function under construction.
  struct Function {
    mlir::func::FuncOp op;
    std::vector<Interval> ranges; // of its arguments
  };
  Function open(llvm::StringRef name);
  void close(Function &function, llvm::ArrayRef<Entry> results);
  Entry broadcastTo(mlir::RankedTensorType type);

  std::mt19937_64 engine;
  uint64_t seed;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Function *current = nullptr;
  std::vector<Entry> pool;
  std::vector<int64_t> sizes;
  int64_t budget;
  int blocks = 0;
};

/// Adds an op or a few; false where the scope or the budget has no room.
using Production = bool (*)(Generator &);

struct WeightedProduction {
  int weight;
  Production produce;
};

// One table a family.
llvm::ArrayRef<WeightedProduction> elementwiseProductions();
llvm::ArrayRef<WeightedProduction> shapeProductions();
llvm::ArrayRef<WeightedProduction> contractionProductions();
llvm::ArrayRef<WeightedProduction> compositeProductions();
llvm::ArrayRef<WeightedProduction> routingProductions();
llvm::ArrayRef<WeightedProduction> structureProductions();

} // namespace tessera::metamorphic
