// Choices, values and scopes of the generator.
#include "test/metamorphic/Generator.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

Interval Interval::operator*(const Interval &y) const {
  double a = low * y.low, b = low * y.high, c = high * y.low, d = high * y.high;
  return {std::min({a, b, c, d}), std::max({a, b, c, d})};
}

// Ends of vectors, of register tiles and of blocks, one less and one more.
static constexpr int64_t kSizes[] = {1,  2,  3,  4,  7,  8,  8,
                                     15, 16, 17, 31, 33, 64, 129};
// Elements of the largest tensor, and scalar operations of a whole graph: they
// keep one interpretation at a few milliseconds.
static constexpr int64_t kMaxElements = 8400;
static constexpr int64_t kBudget = 250000;

Generator::Generator(MLIRContext *context, uint64_t seed)
    : kind(kindOf(seed)), builder(context),
      e(builder, UnknownLoc::get(context)), engine(seed ^ 0x9e3779b97f4a7c15),
      seed(seed), budget(kBudget) {
  engine.discard(8);
  for (int64_t i = between(2, 4); i > 0; --i)
    sizes.push_back(kSizes[below(std::size(kSizes))]);
  if (chance(6))
    sizes.push_back(0);
}

double Generator::number(double low, double high) {
  auto first = static_cast<int64_t>(std::ceil(low * 8)),
       last = static_cast<int64_t>(std::floor(high * 8));
  return static_cast<double>(between(first, last)) / 8;
}

//===--- types ------------------------------------------------------------===//

Type Generator::floatType() {
  if (kind == Kind::interpreter && chance(50))
    return chance(50) ? builder.getF64Type() : builder.getF16Type();
  if (kind == Kind::kernels && chance(25))
    return builder.getBF16Type();
  return f32();
}

Type Generator::integerType() {
  if (kind == Kind::interpreter && chance(50))
    return builder.getIntegerType(chance(50) ? 16 : 8);
  return chance(80) ? i32() : builder.getI64Type();
}

int64_t Generator::size() { return sizes[below(sizes.size())]; }

int64_t Generator::sizeUpTo(int64_t largest) {
  for (int attempt = 0; attempt < 4; ++attempt)
    if (int64_t candidate = size(); candidate <= largest)
      return candidate;
  return between(1, std::min<int64_t>(largest, 3));
}

Shape Generator::shape(int64_t rank) {
  Shape result;
  int64_t count = 1;
  for (int64_t dim = 0; dim < rank; ++dim) {
    result.push_back(sizeUpTo(
        std::max<int64_t>(kMaxElements / std::max<int64_t>(count, 1), 1)));
    count *= result.back();
  }
  // Growing from the left alone would leave the last dimension small.
  std::shuffle(result.begin(), result.end(), engine);
  return result;
}

//===--- values -----------------------------------------------------------===//

Interval Generator::floatRange() {
  return oneOf<Interval>(
      {{-1, 1}, {-2, 2}, {0, 1}, {0.5, 2}, {-8, 8}, {-1, 1}});
}

Interval Generator::integerRange(Type element) {
  if (element.isUnsignedInteger())
    return {0, 255};
  if (element.getIntOrFloatBitWidth() <= 32 && chance(10)) {
    double half = std::ldexp(1.0, element.getIntOrFloatBitWidth() - 1);
    return {-half, half - 1};
  }
  return oneOf<Interval>({{-9, 9}, {0, 7}, {-100, 100}});
}

Entry Generator::argument(RankedTensorType type, Interval range) {
  Value value = current->op.front().addArgument(type, e.location());
  current->ranges.push_back(range);
  pool.push_back({value, range});
  return pool.back();
}

Entry Generator::argument(RankedTensorType type) {
  Type element = type.getElementType();
  if (element.isInteger(1))
    return argument(type, {0, 1});
  return argument(type, isa<FloatType>(element) ? floatRange()
                                                : integerRange(element));
}

Entry Generator::add(Value value, Interval range) {
  Entry entry{value, range};
  pool.push_back(entry);
  if (!entry.isFloat() || range.magnitude() <= 1000)
    return entry;
  return limited(entry, 16);
}

Entry Generator::splat(RankedTensorType type, double value) {
  return {e.splat(value, type), {value, value}};
}

std::optional<Entry>
Generator::find(llvm::function_ref<bool(const Entry &)> wanted) {
  std::vector<size_t> found;
  for (size_t i = 0; i < pool.size(); ++i)
    if (wanted(pool[i]))
      found.push_back(i);
  if (found.empty())
    return std::nullopt;
  // Half of the time among the last four: chains are what fusion is about.
  size_t recent = std::min<size_t>(found.size(), 4);
  size_t pick =
      chance(50) ? found.size() - 1 - below(recent) : below(found.size());
  return pool[found[pick]];
}

Entry Generator::floats(int64_t minRank) {
  if (chance(85))
    if (auto entry = find(
            [&](const Entry &x) { return x.isFloat() && x.rank() >= minRank; }))
      return *entry;
  return argument(tensor(shape(between(std::max<int64_t>(minRank, chance(90)),
                                       std::max<int64_t>(minRank, 4))),
                         floatType()));
}

Entry Generator::integers() {
  if (chance(70))
    if (auto entry = find([](const Entry &x) { return x.isInteger(); }))
      return *entry;
  return argument(tensor(shape(between(0, 3)), integerType()));
}

// A smaller tensor (a bias, a row statistic, a scalar) that repeats.
Entry Generator::broadcastTo(RankedTensorType type) {
  Shape dims, small;
  int64_t form = below(4);
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    bool last = dim == type.getRank() - 1;
    if (form == 0 ? last : form == 1 ? !last : form == 2 && chance(50)) {
      dims.push_back(dim);
      small.push_back(type.getDimSize(dim));
    }
  }
  auto smallType = tensor(small, type.getElementType());
  auto from = find([&](const Entry &x) { return x.type() == smallType; });
  Entry x = from && chance(70) ? *from : argument(smallType);
  return {e.broadcast(x.value, dims, type.getShape()), x.range};
}

Entry Generator::like(RankedTensorType type) {
  int64_t choice = below(100);
  if (choice < 15 && type.getRank() > 0)
    return broadcastTo(type);
  if (choice < 22 && !type.getElementType().isUnsignedInteger()) {
    double low = isa<FloatType>(type.getElementType()) ? -3 : 0;
    return splat(type, type.getElementType().isInteger(1)
                           ? static_cast<double>(below(2))
                           : std::round(number(low, 3)));
  }
  if (choice < 85)
    if (auto same = find([&](const Entry &x) { return x.type() == type; }))
      return *same;
  if (choice < 92)
    if (auto other = find([&](const Entry &x) {
          return x.element() == type.getElementType() &&
                 x.count() == type.getNumElements();
        }))
      return {e.reshape(other->value, type.getShape()), other->range};
  return argument(type);
}

Entry Generator::ids(ArrayRef<int64_t> shape, int64_t count) {
  Interval range{0, static_cast<double>(count - 1)};
  if (chance(40))
    if (auto found = find([&](const Entry &x) {
          return x.isInteger() && x.shape() == shape && x.range.within(range);
        }))
      return *found;
  Type type = integerType();
  if (type.getIntOrFloatBitWidth() < 16)
    type = i32();
  return argument(tensor(shape, type), range);
}

Entry Generator::positive(Entry x, double low) {
  if (x.range.low >= low)
    return x;
  // Multiples of 1/8, as every constant.
  double shift = std::ceil(low * 8) / 8 + number(0, 1);
  switch (below(3)) {
  case 0:
    return {e.add(e.unary<AbsOp>(x.value), shift),
            {shift, x.range.magnitude() + shift}};
  case 1:
    return {e.add(e.unary<SigmoidOp>(x.value), shift), {shift, 1 + shift}};
  default: {
    x = limited(x, 16);
    return {e.add(e.mul(x.value, x.value), shift),
            {shift, x.range.magnitude() * x.range.magnitude() + shift}};
  }
  }
}

Entry Generator::limited(Entry x, double magnitude) {
  if (x.range.magnitude() <= magnitude)
    return x;
  if (x.range.magnitude() <= 1e4 && magnitude >= 1 && chance(20))
    return {e.unary<TanhOp>(x.value), around(1)};
  double scale = std::exp2(-std::ceil(std::log2(
      x.range.magnitude() / std::exp2(std::floor(std::log2(magnitude))))));
  return {e.mul(x.value, scale), x.range * Interval{scale, scale}};
}

//===--- structure --------------------------------------------------------===//

bool Generator::afford(int64_t work) {
  if (work > budget || work > kBudget / 2)
    return false;
  budget -= work;
  return true;
}

void Generator::grow(int64_t count) {
  static const std::vector<WeightedProduction> productions = [] {
    std::vector<WeightedProduction> all;
    for (auto family : {elementwiseProductions(), shapeProductions(),
                        contractionProductions(), compositeProductions(),
                        routingProductions(), structureProductions()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  int64_t total = 0;
  for (const WeightedProduction &production : productions)
    total += production.weight;
  for (int64_t made = 0, tries = 0; made < count && tries < 4 * count;
       ++tries) {
    int64_t pick = below(total);
    for (const WeightedProduction &production : productions)
      if ((pick -= production.weight) < 0) {
        made += production.produce(*this);
        break;
      }
  }
}

void Generator::inScope(llvm::function_ref<void()> body) {
  size_t before = pool.size();
  OpBuilder::InsertionGuard guard(builder);
  ++depth;
  body();
  --depth;
  pool.resize(before, Entry{Value(), {0, 0}});
}

SmallVector<Entry> Generator::unused(size_t most) {
  SmallVector<Entry> result;
  for (const Entry &entry : llvm::reverse(pool))
    if (result.size() < most && entry.value.use_empty() &&
        !isa<BlockArgument>(entry.value))
      result.push_back(entry);
  return result;
}

Generator::Function Generator::open(StringRef name) {
  builder.setInsertionPointToEnd(module->getBody());
  auto op = builder.create<func::FuncOp>(e.location(), name,
                                         builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(op.addEntryBlock());
  return {op, {}};
}

void Generator::close(Function &function, ArrayRef<Entry> results) {
  SmallVector<Value> values;
  for (const Entry &entry : results)
    values.push_back(entry.value);
  builder.create<func::ReturnOp>(e.location(), values);
  Block &body = function.op.front();
  function.op.setType(builder.getFunctionType(body.getArgumentTypes(),
                                              ValueRange(values).getTypes()));
}

func::FuncOp
Generator::block(ArrayRef<Entry> like,
                 llvm::function_ref<SmallVector<Entry>(ArrayRef<Entry>)> body) {
  OpBuilder::InsertionGuard guard(builder);
  std::vector<Entry> outer = std::move(pool);
  Function *caller = current;
  Function function = open("block" + std::to_string(blocks++));
  function.op.setPrivate();
  function.op->setAttr(kBlockAttr, builder.getUnitAttr());
  current = &function;
  pool.clear();
  for (const Entry &entry : like)
    argument(entry.type(), entry.range);
  SmallVector<Entry> arguments(pool.begin(), pool.end());
  ++depth;
  close(function, body(arguments));
  --depth;
  current = caller;
  pool = std::move(outer);
  // The caller brings what the body came to need, too.
  for (auto [i, range] : llvm::enumerate(function.ranges))
    if (i >= like.size())
      function.op.setArgAttr(
          i, kRangeAttr, builder.getDenseF64ArrayAttr({range.low, range.high}));
  return function.op;
}

OwningOpRef<ModuleOp> Generator::run() {
  module = ModuleOp::create(e.location());
  (*module)->setAttr(kSeedAttr,
                     builder.getI64IntegerAttr(static_cast<int64_t>(seed)));
  Function function = open("f");
  current = &function;
  grow(between(2, 14));
  SmallVector<Entry> results = unused(between(2, 10));
  for (const Entry &entry : pool)
    if (entry.value.use_empty() ? results.empty()
                                : !isa<BlockArgument>(entry.value) && chance(8))
      results.push_back(entry);
  close(function, results);
  for (auto [i, range] : llvm::enumerate(function.ranges)) {
    function.op.setArgAttr(
        i, kRangeAttr, builder.getDenseF64ArrayAttr({range.low, range.high}));
    if (kind != Kind::mixed ||
        !isa<FloatType>(
            tensorType(function.op.getArgument(i)).getElementType()))
      continue;
    function.op.setArgAttr(i, kStateAttr,
                           builder.getStringAttr("p" + std::to_string(i)));
    function.op.setArgAttr(
        i, kRoleAttr, RoleAttr::get(builder.getContext(), Role::parameter));
  }
  return std::move(module);
}

} // namespace tessera::metamorphic
