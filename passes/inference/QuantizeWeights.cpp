// The pass: matrices of linear layers as integers or e4m3 with scales, or as
// bf16 in the same micropanels.
#include "dialects/graph/Build.h"
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/Programs.h"
#include "dialects/graph/StoredLayout.h"
#include "passes/inference/Inference.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_QUANTIZEWEIGHTS
#include "passes/inference/Passes.h.inc"
} // namespace tessera

// Smaller matrices are few bytes, and mostly padding as micropanels.
static constexpr int64_t kLeastRows = kMicropanel, kLeastColumns = kQuantBlock;

namespace {

struct QuantizeWeights : tessera::impl::QuantizeWeightsBase<QuantizeWeights> {
  using QuantizeWeightsBase::QuantizeWeightsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (floats && (bits == 16 || zeros)) {
      module.emitError("quantize-weights: `floats` have 8 or 4 bits and no "
                       "zero points");
      return signalPassFailure();
    }
    if (floats && bits == 4 &&
        (!frozen || group != QuantizedLayout::kNf4Group)) {
      module.emitError("quantize-weights: `floats` of 4 bits are of `frozen` "
                       "matrices, in groups of 64");
      return signalPassFailure();
    }
    llvm::StringSet<> gone;
    orientations.clear();
    // @loss says how matrices are read that other programs only take.
    SmallVector<func::FuncOp> programs;
    if (func::FuncOp loss = graph::findProgram(module, graph::Program::loss))
      programs.push_back(loss);
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isPrivate() &&
          !graph::isProgram(function, graph::Program::init) &&
          !graph::isProgram(function, graph::Program::loss))
        programs.push_back(function);
    if (tables)
      findTables(programs);
    for (func::FuncOp program : programs)
      if (failed(quantize(program, gone)))
        return signalPassFailure();
    if (func::FuncOp init = graph::findProgram(module, graph::Program::init))
      dropResults(init, gone);
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        function.removeArgAttr(i, graph::kStoredAttr);
  }

private:
  void findTables(ArrayRef<func::FuncOp> programs);
  /// `inStacks`: whether a stack [matrices, columns, rows] is replaced.
  std::optional<bool> sumsFirst(OpOperand &use, bool inStacks);
  LogicalResult quantize(func::FuncOp function, llvm::StringSet<> &gone);
  LogicalResult checkFrozen(func::FuncOp function, unsigned index,
                            size_t products, bool transposed);
  bool isCandidate(func::FuncOp function, unsigned index);
  std::optional<QuantizedLayout> layoutOf(func::FuncOp function, unsigned index,
                                          bool inBlocks) const;
  bool replace(func::FuncOp function, unsigned index,
               ArrayRef<OpOperand *> products, bool transposed);
  static void dropResults(func::FuncOp init, const llvm::StringSet<> &gone);

  llvm::StringMap<bool> orientations; ///< if frozen: is it [columns, rows]?
  llvm::StringSet<> heads; ///< of tables: what a product reads, or is stored so
};

} // namespace

// Whether the matmul sums over the matrix's first dimension, so that the matrix
// is [columns, rows]; nothing if it does not have exactly one reduction
// dimension and one free dimension.
static std::optional<bool> sumsFirst(graph::EinsumOp einsum, OpOperand &use) {
  if (graph::tensorType(use.get()).getRank() != 2)
    return std::nullopt;
  auto equation = llvm::cantFail(graph::Einsum::parse(einsum.getEquation()));
  bool isLeft = use.getOperandNumber() == 0;
  StringRef term = isLeft ? equation.lhs : equation.rhs,
            other = isLeft ? equation.rhs : equation.lhs;
  bool first = other.contains(term[0]), last = other.contains(term[1]);
  if (first == last || einsum.getLhs() == einsum.getRhs())
    return std::nullopt;
  return first;
}

// The same of each matrix of a stack, where a group of rows has one.
static std::optional<bool> sumsFirst(graph::GroupedMatmulOp grouped,
                                     OpOperand &use, bool inStacks) {
  bool isMatrix = use.getOperandNumber() == 1;
  if (!isMatrix || grouped.isPadded())
    return std::nullopt;
  if (grouped.getTransposed())
    return false;
  return inStacks ? std::optional(true) : std::nullopt;
}

// The same of what a use comes to: in a block, all that it does.
std::optional<bool> QuantizeWeights::sumsFirst(OpOperand &use, bool inStacks) {
  if (auto einsum = dyn_cast<graph::EinsumOp>(use.getOwner()))
    return ::sumsFirst(einsum, use);
  if (auto grouped = dyn_cast<graph::GroupedMatmulOp>(use.getOwner()))
    return ::sumsFirst(grouped, use, inStacks);
  auto call = dyn_cast<func::CallOp>(use.getOwner());
  if (!call)
    return std::nullopt;
  auto callee = getOperation().lookupSymbol<func::FuncOp>(call.getCallee());
  std::optional<bool> all;
  for (OpOperand &inner :
       callee.getArgument(use.getOperandNumber()).getUses()) {
    std::optional<bool> one = sumsFirst(inner, inStacks);
    if (!one || (all && *all != *one))
      return std::nullopt;
    all = one;
  }
  return all;
}

// Experts' matrices are stacks.
bool QuantizeWeights::isCandidate(func::FuncOp function, unsigned index) {
  auto role =
      function.getArgAttrOfType<graph::RoleAttr>(index, graph::kRoleAttr);
  auto type = dyn_cast<RankedTensorType>(function.getArgument(index).getType());
  // An adapter's base, of which the layers are quantized, and no scores.
  if (frozen)
    return role && role.getValue() == graph::Role::parameter && type &&
           isa<FloatType>(type.getElementType()) &&
           (type.getRank() == 2 || type.getRank() == 3) &&
           function.getArgAttr(index, graph::kFrozenAttr) &&
           function.getArgAttr(index, graph::kLayerAttr) &&
           !function.getArgAttr(index, graph::kQuantizedAttr) && // scales
           !function.getArgAttr(index, graph::kKeepF32Attr);
  return role && role.getValue() == graph::Role::parameter && type &&
         isa<FloatType>(type.getElementType()) &&
         (type.getRank() == 2 || type.getRank() == 3) &&
         !function.getArgAttr(index, graph::kKeepF32Attr) &&
         !function.getArgAttr(index, graph::kFrozenAttr);
}

// Each frozen matrix must fit: memory is planned for what is quantized.
// Training multiplies by rows and by columns, so both are whole.
LogicalResult QuantizeWeights::checkFrozen(func::FuncOp function,
                                           unsigned index, size_t products,
                                           bool transposed) {
  BlockArgument weight = function.getArgument(index);
  ArrayRef<int64_t> shape = graph::tensorType(weight).getShape().take_back(2);
  auto name = function.getArgAttrOfType<StringAttr>(index, graph::kStateAttr);
  auto uses =
      static_cast<size_t>(std::distance(weight.use_begin(), weight.use_end()));
  if (products != uses)
    return function.emitError("'")
           << name.getValue() << "' is read by other ops than matmuls, or by "
           << "matmuls over both dimensions; a quantized base does not support "
           << "it";
  int64_t block =
      floats && bits == 4 ? QuantizedLayout::kNf4Group : kQuantBlock;
  if (shape[transposed] % kMicropanel || shape[!transposed] % block)
    return function.emitError("'")
           << name.getValue() << "' has " << shape[transposed] << " rows of "
           << shape[!transposed] << " weights; a quantized base requires a "
           << "multiple of 16 rows, each of whole blocks of " << block;
  return success();
}

// Whether the use gathers rows of the matrix.
static bool isLookup(OpOperand &use) {
  return isa<graph::EmbeddingOp>(use.getOwner()) && use.getOperandNumber() == 0;
}

// Matrices that programs have in one layout, whether they gather its rows or
// multiply by it: one program may do only one of both.
void QuantizeWeights::findTables(ArrayRef<func::FuncOp> programs) {
  heads.clear();
  llvm::StringSet<> others;
  for (func::FuncOp program : programs)
    for (unsigned index = 0; index < program.getNumArguments(); ++index) {
      if (!isCandidate(program, index))
        continue;
      StringRef name =
          program.getArgAttrOfType<StringAttr>(index, graph::kStateAttr)
              .getValue();
      if (program.getArgAttr(index, graph::kStoredAttr))
        heads.insert(name);
      for (OpOperand &use : program.getArgument(index).getUses())
        if (std::optional<bool> transposed = sumsFirst(use, /*inStacks=*/false))
          (*transposed ? others : heads).insert(name);
    }
  for (const auto &each : others)
    heads.erase(each.getKey());
}

LogicalResult QuantizeWeights::quantize(func::FuncOp function,
                                        llvm::StringSet<> &gone) {
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    if (!isCandidate(function, index))
      continue;
    std::string name =
        function.getArgAttrOfType<StringAttr>(index, graph::kStateAttr).str();
    auto stored =
        graph::readStored(function.getArgAttr(index, graph::kStoredAttr));
    const bool inStacks = stored && stored->mxfp4();
    SmallVector<OpOperand *> products;
    std::optional<bool> transposed;
    for (OpOperand &use : function.getArgument(index).getUses()) {
      std::optional<bool> one = sumsFirst(use, inStacks);
      if (isLookup(use) && heads.contains(name))
        one = false;
      if (!one || (transposed && *transposed != *one))
        continue;
      transposed = one;
      products.push_back(&use);
    }
    if (auto known = orientations.find(name);
        function.getArgument(index).use_empty() && known != orientations.end())
      transposed = known->second;
    if (!transposed && !(frozen && !function.getArgument(index).use_empty()))
      continue;
    if (frozen && failed(checkFrozen(function, index, products.size(),
                                     transposed.value_or(false))))
      return failure();
    if (frozen)
      orientations[name] = *transposed;
    if (replace(function, index, products, *transposed))
      gone.insert(name);
  }
  return success();
}

// Without rows and columns: as the checkpoint stores the argument, or as all
// are; nothing if it stays.
std::optional<QuantizedLayout> QuantizeWeights::layoutOf(func::FuncOp function,
                                                         unsigned index,
                                                         bool inBlocks) const {
  if (auto stored =
          graph::readStored(function.getArgAttr(index, graph::kStoredAttr)))
    return stored;
  BlockArgument weight = function.getArgument(index);
  if (bits == 0 ||
      (bits == 16 && !graph::tensorType(weight).getElementType().isBF16()))
    return std::nullopt;
  return QuantizedLayout{.bits = inBlocks || bits == 16 || frozen ? bits : 8,
                         .group = group,
                         .zeros = (inBlocks || frozen) && zeros,
                         .floats = floats};
}

// Replaces argument `index` by two arguments and their dequantization. Returns
// whether the argument is unused now and was removed.
bool QuantizeWeights::replace(func::FuncOp function, unsigned index,
                              ArrayRef<OpOperand *> products, bool transposed) {
  BlockArgument weight = function.getArgument(index);
  RankedTensorType type = graph::tensorType(weight);
  bool inBlocks = llvm::any_of(products, [](OpOperand *use) {
    return isa<func::CallOp>(use->getOwner());
  });
  std::optional<QuantizedLayout> found = layoutOf(function, index, inBlocks);
  if (!found)
    return false;
  QuantizedLayout layout = *found;
  int64_t stack = type.getRank() == 3 ? type.getDimSize(0) : 0;
  ArrayRef<int64_t> shape = type.getShape().take_back(2);
  layout.rows = shape[transposed];
  layout.columns = shape[!transposed];
  if ((!frozen &&
       (layout.rows < kLeastRows || layout.columns < kLeastColumns)) ||
      (stack && layout.rows % kMicropanel))
    return false;
  layout.rows *= std::max<int64_t>(stack, 1);
  MLIRContext *context = &getContext();
  auto name = function.getArgAttrOfType<StringAttr>(index, graph::kStateAttr);
  auto insert = [&](bool isScales, RankedTensorType of) {
    NamedAttrList attributes;
    attributes.set(
        graph::kStateAttr,
        StringAttr::get(context,
                        name.getValue() + (isScales ? ".scales" : ".values")));
    attributes.set(graph::kRoleAttr,
                   graph::RoleAttr::get(context, graph::Role::parameter));
    if (Attribute layer =
            function.getArgAttr(weight.getArgNumber(), graph::kLayerAttr))
      attributes.set(graph::kLayerAttr, layer);
    if (frozen)
      attributes.set(graph::kFrozenAttr, UnitAttr::get(context));
    attributes.set(
        graph::kQuantizedAttr,
        graph::QuantizedOrigin{name.str(), isScales, layout, transposed, stack}
            .write(context));
    unsigned at = weight.getArgNumber() + 1 + isScales;
    function.insertArgument(at, of, attributes.getDictionary(context),
                            weight.getLoc());
    return function.getArgument(at);
  };
  Value values = insert(false, graph::quantizedValuesType(context, layout)),
        scales = layout.hasScales()
                     ? insert(true, graph::quantizedScalesType(context, layout))
                     : Value();
  OpBuilder b = OpBuilder::atBlockBegin(&function.front());
  Value matrix = b.create<graph::DequantizeOp>(
      NameLoc::get(name), type, values, scales, layout.bits, layout.group,
      layout.zeros, layout.floats, layout.superBlocks, transposed);
  for (OpOperand *use : products)
    use->set(matrix);
  if (matrix.use_empty())
    matrix.getDefiningOp()->erase();
  if (!weight.use_empty())
    return false;
  function.eraseArgument(weight.getArgNumber());
  return true;
}

void QuantizeWeights::dropResults(func::FuncOp init,
                                  const llvm::StringSet<> &gone) {
  llvm::BitVector dropped(init.getNumResults());
  for (unsigned i = 0; i < init.getNumResults(); ++i)
    if (auto name = init.getResultAttrOfType<StringAttr>(i, graph::kStateAttr))
      dropped[i] = gone.contains(name.getValue());
  init.front().getTerminator()->eraseOperands(dropped);
  init.eraseResults(dropped);
}
